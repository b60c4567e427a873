"""The data of phrase localization, Algorithm 1 of Wang et al. 2018.

- `examples`: a split's phrases, texts and regions, and which region is a
  positive or a negative of a phrase;
- `hard_negatives`: the negatives for the last epochs, found once;
- `sampler`: the rows and arrays of a batch: phrases, their regions and the
  candidates;
- `mining`: mines candidates in a step and computes the losses.
"""
