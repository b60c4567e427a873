"""Training: epochs, optimizers, checkpoints."""
