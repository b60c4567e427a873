"""Phrase localization; `tenant` says what it is made of."""
