"""Phrase localization; `spec` composes its task."""
