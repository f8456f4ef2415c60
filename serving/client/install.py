"""The command that installs an extra, for errors: the package is on no index yet."""


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install -e '.[{extra}]' in the repository"
