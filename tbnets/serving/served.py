"""What each loaded SavedModel has, whatever it was exported for."""

import os

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.images import read_content
from tbnets.serving.tree_reader import TreeReader
from tbnets.text.vocabulary import Vocabulary

VOCABULARY_FILE = "assets.extra/vocabulary.txt"
IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""


class Served:
    """A loaded SavedModel whose signatures are called with lists and arrays.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function.
        metadata: content of `assets.extra/tbnets.json`, {} where absent.
        reads_text: name of the signature that embeds texts alone; None where
            there is none.

    Attributes:
        required: names of the signatures that a model must have.
        vocabulary: the `Vocabulary` of its texts; None without.
        text_spec: `tf.TensorSpec` of its texts; None without.
    """

    required = ()

    def __init__(self, path, signatures, metadata, reads_text=None):
        self.path = path
        self.metadata = metadata
        words = path / VOCABULARY_FILE
        self.vocabulary = Vocabulary.load(words) if words.is_file() else None
        self._signatures = signatures
        self.text_spec = self._specs(reads_text)[0] if reads_text else None

    def call(self, signature, **inputs):
        """Calls any signature.

        Args:
            signature: its name.
            **inputs: name -> list or array.

        Returns:
            dict, name of an output -> NumPy array.

        Raises:
            ValueError: there is none of this name, or of these inputs.
        """
        if signature not in self._signatures:
            raise InputError(
                "`signature` must be one of the model's. Received: signature="
                f"{signature!r}. There are: {sorted(self._signatures)}."
            )
        specs = {spec.name: spec for spec in self._specs(signature)}
        if specs.keys() != inputs.keys():
            raise InputError(
                f"`inputs` must be those of {signature}, {sorted(specs)}. "
                f"Received: {sorted(inputs)}. Give each by its name."
            )
        given = {
            name: as_input(name, specs[name], value)
            for name, value in inputs.items()
        }
        answers = self._signatures[signature](**given)
        return {name: value.numpy() for name, value in answers.items()}

    def _specs(self, name):
        specs = self._signatures[name].structured_input_signature[1]
        if not specs:
            raise InputError(
                "`path` must be a SavedModel exported by tbnets. Received: "
                f"path='{self.path}', whose {name} takes nothing. Export the "
                "run again."
            )
        return list(specs.values())

    @property
    def takes_captions(self):
        """Whether texts are strings (else they are feature vectors)."""
        spec = self.text_spec
        return spec is not None and (
            spec.dtype == tf.string or self.takes_trees
        )

    @property
    def takes_trees(self):
        """Whether texts are parsed before the graph takes them."""
        return self.text_spec.name == TreeReader.spec.name

    def text_input(self, texts, argument="texts"):
        """Returns texts as the graph takes them.

        Args:
            texts: list of strings, or float array; where `takes_trees`,
                strings, which are parsed, or `text.trees.Tree`s.
            argument: how a message calls them.
        """
        if not self.takes_trees:
            return as_input(argument, self.text_spec, texts)
        if isinstance(texts, str):
            raise InputError(
                f"`{argument}` must be a list. Received: one str. Put it into "
                "a list."
            )
        reader = TreeReader(self.vocabulary, self.metadata.get("max_tokens"))
        return tf.constant(reader.read(texts))

    @property
    def embedding_dim(self):
        """The number of features of an embedding."""
        outputs = [one.structured_outputs for one in self._signatures.values()]
        sizes = [
            one["embeddings"].shape[-1]
            for one in outputs
            if "embeddings" in one
        ]
        return next((size for size in sizes if size is not None), None)


def as_input(argument, spec, values):
    """Converts one input; says what is wrong with its shape or type.

    Args:
        argument: how the message calls it.
        spec: its `tf.TensorSpec`.
        values: list of strings, or float array; for `IMAGE_BYTES` paths will
            do too.

    Returns:
        A tensor.

    Raises:
        ValueError: it is no list, or of another shape.
    """
    if spec.dtype == tf.string:
        if isinstance(values, str | bytes | os.PathLike):
            raise InputError(
                f"`{argument}` must be a list. Received: one "
                f"{type(values).__name__}. Put it into a list."
            )
        if spec.name == IMAGE_BYTES:
            values = [
                one if isinstance(one, bytes) else read_content(one)
                for one in values
            ]
        return tf.constant(list(values), tf.string, [len(values)])
    values = np.asarray(values, np.float32)
    if not spec.shape.is_compatible_with(values.shape):
        raise InputError(
            f"`{argument}` must be of shape {tuple(spec.shape)}. Received: "
            f"shape={values.shape}. Use the features the network was trained "
            "on."
        )
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():  # As the graph would say, which knows no argument.
        bad = np.flatnonzero(~finite)
        raise InputError(
            f"`{argument}` must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {finite.size}, first in row {bad[0]}. Check the "
            "features."
        )
    return tf.constant(values)
