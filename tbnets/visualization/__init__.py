"""Draws photos, search results, embedding maps and learning curves."""
