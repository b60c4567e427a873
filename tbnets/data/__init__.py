"""Reads files into records with ids, and draws batches from the records."""
