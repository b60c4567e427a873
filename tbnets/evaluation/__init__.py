"""Metrics in pure NumPy."""
