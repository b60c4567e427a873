"""Flags that suit a number of photos, for who gives none of them."""


def recipe(num_photos):
    """Returns the flags of a run on features of so many photos.

    Args:
        num_photos: photos of the training split.

    Returns:
        dict, name of a flag -> value.
    """
    del num_photos
    return {
        "cnn_weights": "imagenet",
        "image_transform": ["signed_sqrt", "standardize"],
        "text_encoder": "mean",
        "word_dim": 300,
        "min_count": 5,
        "word_dropout": 0.3,
        "image_units": [1024],
        "text_units": [1024],
        "batch_normalization": "none",
        "input_dropout": 0.2,
        "margin": 0.2,
        "distance": "cosine",
        "num_negatives": 5,
        "reduction": "mean",
        "image_to_text_weight": 1.0,
        "text_to_image_weight": 1.0,
        "text_to_text_weight": 0.2,
        "images_per_batch": 128,
        "captions_per_image": 2,
        "optimizer": "adamw",
        "learning_rate": 0.001,
        "weight_decay": 0.0001,
        "schedule": "cosine",
        "clip_norm": 2.0,
        "epochs": 24,
    }
