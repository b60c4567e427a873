"""Training loop, checkpoints, optimizers and TensorBoard."""
