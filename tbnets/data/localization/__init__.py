"""Algorithm 1 of Wang et al. 2018: what phrase localization learns from.

In the order in which data flow:

- `roles`: which region of its photo is a positive of a phrase, a negative, or
  neither;
- `examples`: one split, its phrases, texts and regions with these roles;
- `hard_negatives`: which negatives the last epochs learn from, found once;
- `sampler`: the rows of a batch: phrases, a region of each, the others;
- `batches`: these rows as arrays;
- `candidates`: what a step mines of them;
- `mining`: the losses of networks that learn from them.
"""
