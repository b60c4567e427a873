"""Calls an exported model with lists and arrays."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Array,
    Path,
    Photos,
    as_numbers,
    check_finite,
    refuse_single,
    short_repr,
)
from tbnets.data.images import KINDS, fault_of
from tbnets.errors import InputError
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE, compare_all
from tbnets.serving import finding, saved_files
from tbnets.serving.inputs import (
    ARGUMENTS,
    IMAGE_BYTES,
    Inputs,
    Texts,
    TreeReader,
    as_input,
    is_trees,
)
from tbnets.text.vocabulary import Vocabulary

SIDES = (
    {"embed_image": "image_embeddings", "embed_text": "text_embeddings"},
    {
        "embed_phrases": "phrase_embeddings",
        "embed_regions": "region_embeddings",
    },
)
"""The two sides that a model compares, in the order of its similarities:
endpoint -> name of its embeddings in the endpoint `compare`."""


class Served:
    """A loaded SavedModel of any task.

    A method raises an error if the model lacks its endpoint.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function.
        metadata: content of `assets.extra/tbnets.json`, {} if absent.
        vocabulary: `Vocabulary` of the model's texts, or None.
        root: object that TensorFlow loaded, which keeps the variables alive;
            None for a model on a server.
    """

    def __init__(
        self,
        path: Path,
        signatures: dict,
        metadata: dict,
        vocabulary: Vocabulary | None = None,
        root: Any = None,
    ) -> None:
        self.path: Path = pathlib.Path(path)
        self.metadata = metadata
        self.signatures = signatures
        self.vocabulary = vocabulary
        self.root = root

    __repr__ = short_repr(
        "path",
        "embedding_dim",
        signatures=lambda self: " ".join(sorted(self.signatures)),
    )

    def has(self, *names: str) -> bool:
        """Returns whether the model has endpoints of these names."""
        return set(names) <= set(self.signatures)

    def inputs(self, name: str) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of an endpoint: name -> `tf.TensorSpec`.

        Raises:
            ValueError: the model has no such endpoint.
        """
        if not self.has(name):
            raise InputError(
                "signature",
                f"be one of {sorted(self.signatures)}",
                f"signature={name!r} of {self.path}",
                "Signatures that take photos need tools/export.py "
                "--cnn_weights=imagenet.",
            )
        return self.signatures[name].structured_input_signature[1]

    @property
    def takes_photos(self) -> bool:
        """Whether images are photos rather than features."""
        return any(IMAGE_BYTES in self.inputs(name) for name in self.signatures)

    @property
    def takes_captions(self) -> bool:
        """Whether texts are strings rather than features."""
        names = {"embed_text", "embed_phrases"} & set(self.signatures)
        specs = [spec for name in names for spec in self.inputs(name).values()]
        return any(spec.dtype == tf.string or is_trees(spec) for spec in specs)

    @property
    def embedding_dim(self) -> int | None:
        """The number of values in an embedding; None without embeddings."""
        specs = [f.structured_outputs for f in self.signatures.values()]
        sizes = [x["embeddings"].shape[-1] for x in specs if "embeddings" in x]
        return next((size for size in sizes if size is not None), None)

    def call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature.

        Args:
            signature: name of the signature.
            **inputs: name -> list or array.

        Returns:
            dict, name of an output -> NumPy array.

        Raises:
            ValueError: the model lacks the signature, or an input is invalid.
        """
        specs = self.inputs(signature)
        if specs.keys() != inputs.keys():
            raise InputError(
                "inputs",
                f"be the inputs of {signature}, {sorted(specs)}",
                sorted(inputs),
                "Pass each input by its name.",
            )
        for name, value in inputs.items():
            inputs[name] = as_input(name, specs[name], value)
        return self._ask(signature, inputs)

    def _ask(self, name, inputs):
        self.inputs(name)
        answers = self.signatures[name](**inputs)
        return {key: value.numpy() for key, value in answers.items()}

    def _input(self, name, rows):
        """Returns the input of an endpoint that embeds: name -> tensor."""
        [spec] = self.inputs(name).values()
        argument = ARGUMENTS[name]
        if not is_trees(spec):
            return {spec.name: as_input(argument, spec, rows)}
        refuse_single(argument, rows)
        reader = TreeReader(self.vocabulary, self.metadata.get("max_tokens"))
        return {spec.name: tf.constant(reader.read(rows))}

    def _embed(self, name, rows):
        return self._ask(name, self._input(name, rows))["embeddings"]

    def embed_text(self, texts: Texts) -> np.ndarray:
        """Embeds texts.

        Args:
            texts: list of `m` strings, or float array `[m, text_dim]`; for a
                model of trees also `text.trees.Tree`s, since strings are
                parsed.

        Returns:
            float32 NumPy array `[m, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_text", texts)

    def embed_phrases(self, phrases: Texts) -> np.ndarray:
        """Embeds phrases, like `embed_text`."""
        return self._embed("embed_phrases", phrases)

    def embed_regions(self, features: Array) -> np.ndarray:
        """Embeds features of regions, float array `[n, region_dim]`."""
        return self._embed("embed_regions", features)

    def embed_features(self, features: Array) -> np.ndarray:
        """Embeds image features with a model that also takes photos.

        Args:
            features: float array `[n, feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_features", features)

    def embed_images(self, images: Photos) -> np.ndarray:
        """Embeds images.

        Args:
            images: list of `n` photos, each a path, the bytes of a file, a
                `PIL.Image.Image` or uint8 `[height, width, 3]`; or, if the
                model takes features, float array `[n, feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.

        Raises:
            ValueError: an item is not a photo.
        """
        embeddings, reasons = self.try_images(images)
        for row, reason in enumerate(reasons):
            if reason:
                raise InputError(
                    "images",
                    f"be complete photos: {KINDS}",
                    f"images[{row}], which {reason}",
                    "Leave this image out.",
                )
        return embeddings

    def try_images(self, images: Photos) -> tuple[np.ndarray, list[str]]:
        """Embeds images, and reports broken photos instead of raising an error.

        Args:
            images: as in `embed_images`.

        Returns:
            (embeddings, reasons): float32 `[n, embedding_dim]`, and "" for each
            photo, or its fault, such as "is empty". The embedding is then 0.
        """
        inputs = self._input("embed_image", images)
        answers = self._ask("embed_image", inputs)
        statuses = [reason.decode() for reason in answers.get("status", ())]
        contents = inputs[IMAGE_BYTES].numpy() if statuses else []
        # `fault_of` describes faults in more detail than the graph.
        reasons = [
            reason and (fault_of(content) or reason)
            for content, reason in zip(contents, statuses)
        ]
        return answers["embeddings"], reasons

    def similarity(self, first: Inputs, second: Inputs) -> np.ndarray:
        """Returns the similarities of all pairs of items from two sides.

        Args:
            first: `n` images as in `embed_images`; for phrase localization,
                phrases.
            second: `m` texts as in `embed_text`; for phrase localization,
                features of regions.

        Returns:
            float32 NumPy array `[n, m]` of cosines, or of the logits of a
            learned similarity.
        """
        inputs = {}
        for name, rows in zip(self._sides(), (first, second)):
            inputs |= self._input(name, rows)
        try:
            return self._ask("score", inputs)["similarities"]
        except (tf.errors.InvalidArgumentError, InputError):
            if IMAGE_BYTES in inputs:
                self.embed_images(first)  # Names the broken photo.
            raise

    def compare(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Returns the similarities of all pairs of embeddings of two sides.

        Args:
            first: float array `[n, embedding_dim]`, the first side in
                `similarity`.
            second: float array `[m, embedding_dim]`, the second side.

        Returns:
            float32 NumPy array `[n, m]`, as in `similarity`.

        Raises:
            ValueError: the arrays are not embeddings of this model.
        """
        expected = "embeddings", (None, self.embedding_dim)
        advice = "Pass embeddings from this model."
        first = as_numbers("first", first, *expected, advice)
        second = as_numbers("second", second, *expected, advice)
        products = None if self.has("compare") else first @ second.T
        # A non-finite input makes the sum non-finite, which is faster to check.
        if products is None or not np.isfinite(products.sum(dtype=np.float64)):
            check_finite("first", first)
            check_finite("second", second)
        if products is not None:
            return products
        row, column = self._sides().values()

        def compare(rows, columns):
            pairs = {row: tf.constant(rows), column: tf.constant(columns)}
            return self._ask("compare", pairs)["similarities"]

        return compare_all(compare, first, second, PAIRS_AT_ONCE)

    def _sides(self):
        sides = [side for side in SIDES if self.has(*side)]
        if not sides:
            self.inputs("embed_text")  # Raises an error.
        return sides[0]

    search = finding.search
    propose = finding.propose
    find = finding.find_regions
    localize = finding.localize


def load_saved_model(path: Path, trust: bool = False) -> Served:
    """Loads a SavedModel that `export_saved_model` wrote.

    A SavedModel is a program. A graph with ops that could access files raises
    an error before it is executed.

    Args:
        path: folder of the SavedModel, or a parent of numbered versions, whose
            newest is loaded.
        trust: whether the model's graph may have any ops.

    Returns:
        A `Served`.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel is damaged, or has no signatures or foreign
            ops.

    Example:
        served = tbnets.load_saved_model("served/1")
        served.similarity(image_features, ["a red dog"])  # [n, 1] cosines
    """
    path, root, metadata = saved_files.load_graph(path, trust)
    words = saved_files.read_vocabulary(path)
    return Served(path, dict(root.signatures), metadata, words, root)
