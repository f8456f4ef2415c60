"""What makes the library fast and is not formula."""
