"""Runs a portable model in a browser, in JavaScript and WebAssembly."""
