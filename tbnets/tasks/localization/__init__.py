"""Phrase localization: the task and its scores."""
