"""The table of word vectors that text encoders begin with."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.errors import check_choice
from tbnets.short_repr import short_repr

TRAININGS = ("trained", "regularized", "frozen")


@keras.saving.register_keras_serializable(package="tbnets")
class WordTable(keras.layers.Embedding):
    """Vectors of words, which may begin with those that others trained.

    Args:
        vocabulary_size: number of ids, padding (0) and unknown (1) included.
        embedding_dim: size of a word vector.
        training: `trained`; `frozen`; or `regularized`, when the squared
            distance from the first vectors, summed over all words and times
            `weight`, is one of the layer's `losses`.
        weight: of that distance.

    Returns from a call on int `[n, words]`: float `[n, words, embedding_dim]`.

    Raises:
        ValueError: `training` is unknown.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        training: str = "trained",
        weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        check_choice("training", training, TRAININGS)
        super().__init__(vocabulary_size, embedding_dim, **kwargs)
        self.trainable = training != "frozen"
        self.training, self.weight, self.first = training, weight, None

    __repr__ = short_repr("input_dim", "output_dim", "training")

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Creates the table, and what it is held to."""
        if self.training == "regularized":
            options = {"initializer": "zeros", "trainable": False}
            shape = (self.input_dim, self.output_dim)
            self.first = self.add_weight(
                name="first", shape=shape, dtype="float32", **options
            )
            self.embeddings_regularizer = _Distance(self.first, self.weight)
        super().build(input_shape)

    def take(self, vectors: Array) -> None:
        """Begins with some vectors, float32 `[vocabulary_size, dim]`."""
        self.embeddings.assign(vectors)
        if self.first is not None:
            self.first.assign(vectors)

    # The first vectors too, which an Embedding does not know.
    save_own_variables = keras.layers.Layer.save_own_variables
    load_own_variables = keras.layers.Layer.load_own_variables

    def get_config(self):
        """Returns the constructor's arguments."""
        config: dict[str, Any] = super().get_config()
        own = {"vocabulary_size": self.input_dim, "training": self.training}
        own |= {"embedding_dim": self.output_dim, "weight": self.weight}
        return own | {name: config[name] for name in ("name", "dtype")}


class _Distance(keras.regularizers.Regularizer):
    """The squared distance from other vectors, times a weight."""

    def __init__(self, first, weight):
        self.first, self.weight = first, weight

    def __call__(self, table):
        """Returns a scalar."""
        change = tf.convert_to_tensor(table) - tf.convert_to_tensor(self.first)
        return self.weight * tf.reduce_sum(tf.square(change))

    def get_config(self):
        """Returns nothing: the layer makes it."""
        return {}
