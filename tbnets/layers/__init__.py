"""Building blocks of the two branches."""
