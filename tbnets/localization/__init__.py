"""Algorithm 1 of Wang et al. 2018: what a step of phrase localization has."""
