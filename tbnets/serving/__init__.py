"""A network -> a SavedModel -> its endpoints called."""
