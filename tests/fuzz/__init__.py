"""Damage on purpose: what the package does with broken files and processes.

The tests of every change try a little; conftest.py says how to try more.
"""
