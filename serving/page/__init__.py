"""A page that shows a served model at work: what it says, and where it looks."""
