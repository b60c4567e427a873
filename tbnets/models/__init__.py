"""Keras models with their own `train_step`."""
