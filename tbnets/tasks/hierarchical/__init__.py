"""The parts that HM-LSTM adds to matching; `spec` composes its task."""
