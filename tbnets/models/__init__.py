"""Keras models with custom train steps."""
