"""Embeddings on disk that are searched as they lie there."""
