"""Tasks, models and settings of runs."""
