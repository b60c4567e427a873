"""The built-in data set of rendered scenes."""
