"""What a SavedModel can be asked, and the endpoints of what compares two sides.

A network embeds two kinds of things and compares them: images and texts, or
phrases and regions. `two_sided` builds what any such network can be asked;
`image_endpoints` and `region_endpoints` name the sides and add what begins
with a photo.
"""

import dataclasses

import tensorflow as tf

from tbnets.errors import InputError
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
        photos: the `PhotoReader` that they use, or None; its `max_pixels`
            counts as it is when they are exported.
    """

    functions: dict
    default: str
    tokenizer: Tokenizer | None = None
    photos: object | None = None


class Side:
    """One of the two kinds of things that a network compares.

    Args:
        name: of the endpoint that embeds them, for example `embed_text`.
        embeddings: what `compare` calls their embeddings.
        spec: `tf.TensorSpec` of `n` of them.
        embed: function of such a tensor -> float32 `[n, embedding_dim]`.
    """

    def __init__(self, name, embeddings, spec, embed):
        self.name = name
        self.embeddings = embeddings
        self.spec = spec
        # A function of its own, so that the SavedModel has it once.
        self.embed = tf.function(embed, input_signature=[spec])


def inference(method, read=None):
    """Returns what embeds: a network's method, as it is when it is served.

    Args:
        method: of what a network takes, and `training`.
        read: what makes that of what is served; None where it is the same.
    """

    def embed(rows):
        return method(rows if read is None else read(rows), training=False)

    return embed


def embedding(side):
    """Returns the endpoint that embeds what is of a `Side`."""

    @tf.function(input_signature=[side.spec], autograph=False)
    def call(rows):
        return {"embeddings": side.embed(rows)}

    return call


def two_sided(first, second, similarities, compared_dim=None):
    """Returns what a network can be asked that compares two sides.

    Signatures (`n` of the first side, `m` of the second, either may be 0):

    - one by the name of each side: its things -> `embeddings` float32
      `[n, embedding_dim]`;
    - `score`: things of both -> `similarities` float32 `[n, m]`;
    - `compare`: embeddings of both -> the same.

    Args:
        first: a `Side`.
        second: a `Side`.
        similarities: function of embeddings of both -> `[n, m]`, larger is
            closer.
        compared_dim: dimension of embeddings; None for no `compare`.

    Returns:
        dict, name -> `tf.function`.
    """

    @tf.function(input_signature=[first.spec, second.spec], autograph=False)
    def score(rows, others):
        rows, others = first.embed(rows), second.embed(others)
        return {"similarities": similarities(rows, others)}

    functions = {side.name: embedding(side) for side in (first, second)}
    functions["score"] = score
    if compared_dim is None:
        return functions

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, compared_dim], tf.float32, side.embeddings)
            for side in (first, second)
        ]
    )
    def compare(rows, others):
        return {"similarities": similarities(rows, others)}

    return {**functions, "compare": compare}


def text_spec(tokenizer, text_dim, name="captions"):
    """Returns the `tf.TensorSpec` of texts.

    Args:
        tokenizer: what turns strings into what a network takes, or what its
            `spec` says, as a `TreeReader`; None where texts are features.
        text_dim: dimension of text features; None where there is a tokenizer.
        name: what strings are called.

    Raises:
        ValueError: neither or both of them are given.
    """
    if (tokenizer is None) == (text_dim is None):
        raise InputError(
            "`text_dim` must be given where there is no vocabulary, and only "
            f"there. Received: text_dim={text_dim} and "
            f"{'no' if tokenizer is None else 'a'} vocabulary. Pass the one "
            "that the network was trained with."
        )
    if tokenizer is None:
        return tf.TensorSpec([None, text_dim], tf.float32, "text_features")
    strings = tf.TensorSpec([None], tf.string, name)
    return getattr(tokenizer, "spec", strings)
