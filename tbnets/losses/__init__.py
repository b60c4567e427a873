"""Losses over embeddings; ids define the matching pairs."""
