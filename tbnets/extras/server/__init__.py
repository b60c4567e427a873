"""Serves models for trials over REST and gRPC, and calls them.

`Models` loads the newest version of each model. `rest` and `grpc_service` serve
them, and a `Client` calls a model over REST.
"""
