"""Tests of what recipes make."""
