"""The page of `tbnets demo`."""
