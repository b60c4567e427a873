"""Losses that train embeddings; ids define the matching pairs."""
