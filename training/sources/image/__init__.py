"""Images as sources."""
