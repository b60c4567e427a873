"""The web page of `tbnets demo`."""
