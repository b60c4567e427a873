"""Phrase localization. `spec` composes the task."""
