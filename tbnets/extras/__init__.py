"""What tbnets works without: servers and pages to try models with."""
