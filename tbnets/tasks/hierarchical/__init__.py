"""What HM-LSTM adds to matching: `matching.tenant` composes it."""
