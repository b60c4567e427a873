"""Exports networks as SavedModels, loads and serves them, and runs searches."""
