"""A web page that shows what a served model answers, and what it attends to."""
