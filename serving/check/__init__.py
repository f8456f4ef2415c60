"""The checks of the export gate; each returns its findings as lines, none where all is well."""
