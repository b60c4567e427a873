"""Flags that suit a number of photos, for who gives none of them.

The network is that of `configs/flickr8k_mean.flags`: linear branches on the
mean of learned word vectors. Fewer photos are seen in more epochs, or there
would be too few steps; rarer words are kept, or there would be few; and more
of the inputs is dropped.

Tried on subsets of Flickr8k with features of EfficientNetLite0, recall sum
over its 1000 test photos after the last epoch, one seed each. 240 photos: 24
epochs and words from 5 captions 75.9; 60 epochs 79.3; words from 2 captions
too 84.2; batches of 64 85.2; dropout 0.4 and 0.5 instead of 0.2 and 0.3 91.3,
0.5 and 0.6 85.3, so that a few points are chance. 80 photos: 40.7 in one
batch, 42.1 in batches of 32. 1000 photos: 24 epochs and words from 5 captions
162.7; 60 epochs and words from 2 166.0. Nothing else of the table was compared.
"""

import copy

CHANGING = (
    *("epochs", "images_per_batch", "min_count"),
    *("input_dropout", "word_dropout"),
)
SIZES = {
    120: (100, 32, 1, 0.4, 0.5),
    600: (60, 128, 2, 0.4, 0.5),
    3000: (60, 128, 2, 0.2, 0.3),
    float("inf"): (24, 128, 5, 0.2, 0.3),
}
"""Number of photos from which they no longer hold -> values of `CHANGING`."""
NETWORK = {
    "image_transform": ["signed_sqrt", "standardize"],
    "text_encoder": "mean",
    "word_dim": 300,
    "image_units": [1024],
    "text_units": [1024],
    "batch_normalization": "none",
}
"""What a run has from the model that it begins with, if there is one."""
ALWAYS = {
    "cnn_weights": "imagenet",
    "captions_per_image": 2,
    "optimizer": "adamw",
    "learning_rate": 0.001,
    "weight_decay": 0.0001,
    "schedule": "cosine",
    "clip_norm": 2.0,
}
OF_TRIPLETS = {
    "margin": 0.2,
    "distance": "cosine",
    "num_negatives": 5,
    "reduction": "mean",
    "image_to_text_weight": 1.0,
    "text_to_image_weight": 1.0,
    "text_to_text_weight": 0.2,
}
"""What changes the loss of a paper; a softmax has weights of its own."""


def usual_flags(num_photos, begun_with="", of_triplets=True):
    """Returns the flags of a run on features of so many photos.

    Args:
        num_photos: photos of the training split.
        begun_with: the trained model that it begins with; "" for none.
        of_triplets: whether the loss is one of triplets.

    Returns:
        dict, name of a flag -> value.
    """
    values = next(SIZES[below] for below in SIZES if num_photos < below)
    network = {} if begun_with else NETWORK
    loss = OF_TRIPLETS if of_triplets else {}
    changing = dict(zip(CHANGING, values))
    return copy.deepcopy({**network, **ALWAYS, **loss, **changing})
