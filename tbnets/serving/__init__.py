"""Exports networks as SavedModels, and calls the endpoints."""
