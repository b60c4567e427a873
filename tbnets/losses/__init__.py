"""Embeddings and identities -> a loss."""
