"""Metrics of retrieval and localization, using only NumPy.

- `retrieval` evaluates embeddings of images and captions, whose ranks
  `exact_ranks` computes.
- `score_tiles` ranks by a function that scores pairs, and `query_bank`
  normalises such scores.
- `ranking` ranks candidates of which any number may match a query.
- `localization` evaluates regions that are ranked for phrases, `choices`
  chooses a region, and `correspondences` evaluates links to boxes.
- `ranks`, `boxes` and `arguments` contain shared parts, and `tables` formats
  metrics.
"""
