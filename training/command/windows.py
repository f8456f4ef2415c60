"""Training and serving do not run on Windows."""

import sys


def refuse_windows() -> None:
    """End a command there, with one line that says where it runs."""
    if sys.platform == "win32":
        raise SystemExit(
            "error: training and serving run on Linux and macOS, since tensorflow-text is not made "
            "for Windows: use WSL. The layers and the client run on Windows"
        )
