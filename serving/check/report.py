"""A comparison with a server in Markdown, to be pasted into an issue."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def report(version_dir: Path, server: str, answer: dict[str, Any]) -> str:
    """Return the report of a comparison, `answer`, with a server."""
    findings = answer["findings"]
    here = f"TensorFlow {version('tensorflow')}, Python {platform.python_version()}"
    lines = [
        f"# {version_dir.parent.name}/{version_dir.name} against a server",
        "",
        "| | |",
        "|---|---|",
        f"| server | {server} |",
        f"| compared with | the C++ session of {here}, {platform.platform()} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |",
        f"| requests | {answer.get('asked', 'the comparison did not end')} |",
        f"| differences | {len(findings)} |",
        "",
        *(f"- {finding}" for finding in findings),
    ]
    return "\n".join(lines).rstrip() + "\n"
