"""Branches, encoders and heads: layers that return embeddings or scores."""
