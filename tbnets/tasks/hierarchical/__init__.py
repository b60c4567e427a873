"""What HM-LSTM adds to matching; `spec` composes its task."""
