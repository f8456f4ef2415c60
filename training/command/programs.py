"""Where the programs that XLA compiles are kept, so that the next training begins at once."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TF_XLA_FLAGS"  # which TensorFlow reads when it is imported
FLAG = "--tf_xla_persistent_cache_directory"


def keep_programs() -> Path | None:
    """Have TensorFlow keep its programs in the user's cache; call this before it is imported.

    The folder is made for its user alone: what lies there is run. A folder that the variable names
    already stays.

    Returns:
        The folder, or None where it cannot be made or named.
    """
    flags = os.environ.get(VARIABLE, "")
    if FLAG in flags:
        return Path(flags.partition(f"{FLAG}=")[2].partition(" ")[0])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache, "keras-attention", "xla")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return None
    if " " in str(folder):  # where TensorFlow ends a flag
        return None
    os.environ[VARIABLE] = f"{flags} {FLAG}={folder}".strip()
    return folder
