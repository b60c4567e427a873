"""Files on disk -> records with ids -> batches."""
