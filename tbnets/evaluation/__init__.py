"""Metrics of retrieval and localization, with only NumPy."""
