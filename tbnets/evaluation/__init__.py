"""Metrics of retrieval and localization, using only NumPy."""
