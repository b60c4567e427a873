"""Training data for phrase localization (Wang et al. 2018, Algorithm 1)."""
