"""Phrase localization. `spec` builds the specification of the task."""
