"""Servers and clients of TensorFlow Serving's protocols, gRPC and REST."""
