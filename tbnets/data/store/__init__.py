"""Features on disk, found by id."""
