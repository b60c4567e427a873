"""Exports networks as SavedModels, and loads, searches and serves them."""
