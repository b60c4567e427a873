"""Keras models that embed or match images and texts."""
