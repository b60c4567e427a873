"""Pictures of runs and of answers."""
