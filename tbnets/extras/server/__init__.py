"""Servers and clients for TensorFlow Serving's protocols, gRPC and REST."""
