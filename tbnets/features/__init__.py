"""Pixels to feature vectors, offline and in the exported graph."""
