"""All checks of a SavedModel version."""

from __future__ import annotations

import training.command.startup  # noqa: F401

import os
from pathlib import Path

from serving.check.answers import check_answers
from serving.check.graph import OLDEST, check_graph, read_meta_graph
from serving.check.stored_weights import check_weights
from serving.client.printing import first_line
from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import StatusError
from training.command.progress import Tell

# The share of a check's time after which each begins: 7 million weights on two cores.
_GRAPH, _LOADING, _WEIGHTS, _ANSWERS = 0.04, 0.05, 0.1, 0.18


def check_version(
    version_dir: Path,
    tell: Tell = lambda stage, share=None: None,
    release: str = OLDEST,
) -> list[str]:
    """Return all findings about a model version, none where it can be served.

    Args:
        version_dir: the directory that holds `saved_model.pb`.
        tell: is called with what is done next, see `training.command.progress.stages`.
        release: of TensorFlow Serving, 2.20 or 2.21.
    """
    tell("reading the graph", _GRAPH)
    version_dir = Path(os.path.abspath(version_dir))
    meta_graph = read_meta_graph(version_dir)
    if isinstance(meta_graph, str):
        return [meta_graph]
    findings = check_graph(meta_graph, release)
    if not version_dir.name.isdecimal():
        findings.append(
            f"a server would not find it: {version_dir.name} is not the number of a version"
        )
    if findings:
        # Running it would only repeat these in TensorFlow's words.
        return findings
    tell("loading it as TensorFlow Serving does", _LOADING)
    try:
        session = ModelSession(version_dir)
    except StatusError as error:
        return [f"the C++ loader refuses it: {error.code.name}: {first_line(error)}"]
    with session:
        tell("reading the weights", _WEIGHTS)
        if findings := check_weights(version_dir, meta_graph):
            return findings  # NaN answers would follow from NaN weights
        return check_answers(
            version_dir,
            session,
            lambda stage, done: tell(stage, _ANSWERS + (1 - _ANSWERS) * done),
        )
