"""Servers and clients for TensorFlow Serving's protocols, gRPC and REST.

A `StandIn` serves `Models` with both protocols. For each model, `Versions`
loads and replaces the folder's versions. A `Client` calls a model on a server.
"""
