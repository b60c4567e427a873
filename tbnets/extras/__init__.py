"""Optional parts: presets of Keras Hub, trial servers and the demo page."""
