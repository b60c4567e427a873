"""Converts captions to words, ids and trees."""
