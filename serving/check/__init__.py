"""The checks of exports. Each check returns its findings as lines, and no line if all is well."""
