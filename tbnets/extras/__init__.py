"""Optional parts: Keras Hub presets, trial servers and the demo page."""
