"""Reads captions, photos, phrases and features, and draws batches of them."""
