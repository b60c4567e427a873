"""Whatever goes over a wire: TensorFlow Serving's protocols, both sides."""
