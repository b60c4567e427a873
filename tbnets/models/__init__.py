"""Keras models with their own train steps."""
