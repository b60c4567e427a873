"""Metrics of retrieval and localization, using only NumPy.

- `retrieval` evaluates embeddings of images and captions, whose ranks
  `exact_ranks` computes.
- `score_tiles` ranks by a function that scores pairs, of which any number may
  match, and normalises such scores.
- `grounding` holds the table of phrases, candidate boxes and similarities, and
  evaluates it. `boxes` defines how a box is chosen.
- `ranks` contains shared parts, and `tables` formats metrics.
"""
