"""Stores features on disk, and finds them by id."""
