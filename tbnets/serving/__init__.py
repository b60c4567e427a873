"""Exports networks as SavedModels, and calls their endpoints."""
