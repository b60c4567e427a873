"""What a run is about: its data, network, measures and endpoints."""
