"""The page without a server: a model and the code that runs it in the browser."""
