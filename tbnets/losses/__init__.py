"""Losses of embeddings whose ids define the matching pairs."""
