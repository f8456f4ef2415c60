"""Errors that a user can cause; scripts print them as one line."""


class UserError(ValueError):
    """Something asked for that cannot be done; the message says what was expected and received."""


class RunError(UserError):
    """A run directory that cannot be used as asked."""


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""
