"""The data of phrase localization, Algorithm 1 of Wang et al. 2018."""
