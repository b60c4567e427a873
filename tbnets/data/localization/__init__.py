"""The data of phrase localization, Algorithm 1 of Wang et al. 2018.

- `examples`: a split, and which regions are positives or negatives of a phrase
- `hard_negatives`: the negatives for the final epochs
- `sampler`: the phrases, regions and candidates of a batch
- `mining`: the hardest candidates of a training step, and the losses
"""
