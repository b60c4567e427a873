"""Draws photos, search results, embedding maps and curves."""
