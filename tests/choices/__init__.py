"""Own data of many kinds, each learned by README's command alone."""
