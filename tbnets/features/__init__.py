"""Features of photos, regions and captions.

Photos: `photo_features` builds a network by its name, from `cnn` or, through
`hub`, from Keras Hub, and computes features with it. `extraction` writes the
features of many photos to a store. `cache` keeps stores of computed vectors by
the content of files.

Regions: `proposals` proposes boxes, and `regions` computes their features.

Captions: `caption_encoder`, `tfidf` and `fisher` fit encoders, and
`caption_features` writes the vectors of many captions to a store.

`image_encoders` has layers, which are trained with a model.
"""
