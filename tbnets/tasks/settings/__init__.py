"""Reads a command line into the settings of a run."""
