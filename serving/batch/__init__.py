"""Any amount of text: files in, files of the same names out, each whole or not at all."""
