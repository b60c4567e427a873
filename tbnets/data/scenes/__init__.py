"""The embedded data set of rendered scenes."""
