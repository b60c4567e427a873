"""Metrics of retrieval and localization, with NumPy alone."""
