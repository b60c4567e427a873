"""Damage on purpose: what the package does with broken files and processes.

`tools/fuzz.py` runs it all; the tests of this folder run a little of each.
"""
