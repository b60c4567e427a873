"""The command line -> the settings of a run."""
