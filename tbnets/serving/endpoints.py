"""What a SavedModel can be asked."""

import dataclasses

import tensorflow as tf

from tbnets.errors import InputError
from tbnets.serving.tree_reader import TreeReader
from tbnets.text.vocabulary import Tokenizer


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """What a SavedModel can be asked.

    Args:
        functions: name -> `tf.function` with an input signature, which
            returns a dict of tensors. The names are the signatures', and stay
            in a loaded SavedModel: `loaded.embed_text(captions)`.
        default: which of them is the default signature.
        tokenizer: the `Tokenizer` that they use, or None.
        photos: the `PhotoReader` or `RegionReader` that they use, or None;
            its `max_pixels` counts as it is when they are exported.
    """

    functions: dict
    default: str
    tokenizer: Tokenizer | None = None
    photos: object | None = None


def text_spec(tokenizer, text_dim, name="captions"):
    """Returns the `tf.TensorSpec` of texts.

    Args:
        tokenizer: what turns strings into what a network takes; a
            `TreeReader` where texts are trees, None where they are features.
        text_dim: dimension of text features; None where there is a tokenizer.
        name: what strings are called.

    Raises:
        ValueError: neither or both of them are given.
    """
    if (tokenizer is None) == (text_dim is None):
        raise InputError(
            "`text_dim` must be given when there is no vocabulary, and only "
            f"then. Received: text_dim={text_dim}, vocabulary="
            f"{'None' if tokenizer is None else 'a vocabulary'}. Pass the one "
            "that the network was trained with."
        )
    if tokenizer is None:
        return tf.TensorSpec([None, text_dim], tf.float32, "text_features")
    if isinstance(tokenizer, TreeReader):
        return tokenizer.spec
    return tf.TensorSpec([None], tf.string, name)
