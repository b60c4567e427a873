"""Raw strings -> token ids."""
