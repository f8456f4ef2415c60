"""Declares the kinds of sources without importing Keras, so that `--help` is fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from training.data.read import _specs as specs
from training.data.read import texts
from training.data.read._specs import CorpusError, Spec
from training.data.read.named import _corpora as corpora

if TYPE_CHECKING:
    from training.sources._source import Source


@dataclass(frozen=True)
class SourceKind:
    """A kind of source."""

    reader: str  # `module:class` of its `training.sources._source.Source`
    unit: str  # plural noun for its examples
    # the forms of SPECs for its data, such as "images:PATH", each with its meaning
    specs: Mapping[str, str]
    # whether it is split into tokens. Only tokens are kept in the run, prepared for other backends,
    # linked to a target's words and shown in heat maps
    tokens: bool = False
    # the named data sets, each with its splits
    sets: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def forms(self) -> list[str]:
        """The prefixes of SPECs for its files, such as "images"."""
        return [spec.partition(":")[0] for spec in self.specs if ":" in spec]


# By value of the configuration's key `source`; `training.config._keys` has the keys of each kind.
SOURCE_KINDS = {
    "text": SourceKind(
        reader="training.sources.text._source:TextSource",
        unit="pairs",
        specs=specs.SPECS,
        tokens=True,
        sets={name: corpora.splits(name) for name in corpora.NAMES},
    ),
    "image": SourceKind(
        reader="training.sources.image._source:ImageSource",
        unit="images",
        specs={
            "images:PATH": "a folder of PNG or JPEG files with labels.tsv (or .csv): file TAB text"
        },
        sets=dict.fromkeys(("digits", "captcha"), ("train", "dev", "test")),
    ),
    "events": SourceKind(
        reader="training.sources.events.source:EventSource",
        unit="examples",
        specs={"events:PATH": "a CSV of events with a TOML file beside it"},
        sets=dict.fromkeys(("pbcseq", "nafld"), ("train", "dev", "test", "all")),
    ),
}


def check_data(kind: str, spec: str, split: str | None = None) -> None:
    """Raise a CorpusError if a SPEC has no data or not this split; no data are read."""
    parsed, declared = Spec.of(spec), SOURCE_KINDS[kind]
    if texts.manifest_of(parsed):
        return
    if missing := [path for path in parsed.paths if not path.exists()]:
        raise CorpusError(f"Cannot read {missing[0]}: No such file or directory")
    if parsed.form not in declared.forms:
        if spec not in declared.sets:
            name = "corpus" if kind == "text" else declared.forms[0]
            raise specs.unknown(name, spec, ", ".join(declared.specs), tuple(declared.sets))
        if split and split not in (there := declared.sets[spec]):
            raise CorpusError(f"{spec} has no split {split!r}; it has {', '.join(there)}")


def source_class(kind: str) -> type[Source]:
    """Return the class of a kind of source."""
    module, _, name = SOURCE_KINDS[kind].reader.partition(":")
    reader: type[Source] = getattr(importlib.import_module(module), name)
    return reader
