"""Checks the inputs of endpoints: in the graph, and in Python before a call.

If a server batches requests, a call contains the photos of several clients. An
op that fails on a broken photo would fail the whole call. So each photo is
decoded separately, as an element of a `tf.data` pipeline that drops elements
that fail. TensorFlow itself defines all ops of the pipeline, so every server
can run them.
"""

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Photos,
    Strings,
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data import images, pictures
from tbnets.data.batches import untuned
from tbnets.data.images import require
from tbnets.data.pictures import read_content
from tbnets.errors import check_kind
from tbnets.layers.chunks import inner_layers
from tbnets.text.packed_trees import (
    FIELDS,
    TreeRows,
    most_nodes,
    tree_arrays,
    whole_trees,
)
from tbnets.text.parsing import parse_captions
from tbnets.text.trees import Tree, read_tree
from tbnets.text.vocabulary import Tokenizer


def guarded(function):
    """Returns a concrete function that rejects invalid inputs.

    The shapes must match the input signature, and the numbers must be finite.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(x, spec) for x, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    value = tf.ensure_shape(value, spec.shape)
    if not spec.dtype.is_floating:
        return value
    finite = tf.math.is_finite(value)
    if spec.shape.rank:
        finite = tf.reduce_all(finite, axis=list(range(1, spec.shape.rank)))
    return require_rows(
        value, finite, f"`{spec.name}` must be finite numbers. Received: row"
    )


def require_rows(value, good, expectation):
    """Returns `value` after checking that all rows are valid.

    `good` is bool `[n]`, whether each row is valid, or `[]` for a single value.
    If a row is invalid, the graph raises `tf.errors.InvalidArgumentError` with
    the message `expectation` and the index of the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_cells": "images",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Maps each embedding endpoint to the name of its argument in error
messages."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts an input to a tensor, after checking its shape and type.

    `argument` is its name in error messages. `values` is a list of strings, a
    float array or, for `IMAGE_BYTES`, photos as in `pictures.read_content`.
    Raises TypeError or ValueError if `values` does not match `spec`.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(photo) for photo in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, shape, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        check_kind(f"{argument}[{row}]", value, str, bytes)
        encoded.append(value.encode() if isinstance(value, str) else value)
    return encoded


MOST_WORDS = 200
"""Default number of words after which a served graph truncates a caption."""


class RawRows(tf.Module):
    """Replaces the `Tokenizer` of an endpoint that passes its input on.

    `spec` is the `tf.TensorSpec` of the input. `words` is the `Tokenizer` that
    made ids in the input, or None. `reader` is the Keras layer that reads the
    input, or None.
    """

    def __init__(self, spec, words=None, reader=None):
        super().__init__(name="tokenizer")
        self.spec = spec
        self.vocabulary = words and words.vocabulary
        self.max_tokens = words and words.max_tokens
        # A SavedModel must track the lookup tables of its graphs.
        self.tables = [
            value
            for layer in inner_layers(reader)
            for value in vars(layer).values()
            if isinstance(value, tf.lookup.StaticHashTable)
        ]

    def __call__(self, rows):
        """Returns the rows unchanged."""
        return rows


def bounded(tokenizer):
    """Returns a tokenizer, or a copy with a word limit if it has no limit."""
    if type(tokenizer) is Tokenizer and tokenizer.max_tokens is None:
        return Tokenizer(tokenizer.vocabulary, MOST_WORDS)
    return tokenizer


def is_trees(spec):
    """Returns whether an input must be a result of `TreeReader.read`."""
    return spec.name == TreeReader.spec.name


def beside(features, word_ids):
    """Returns the bits of float32 features, followed by int32 word ids."""
    return tf.concat([tf.bitcast(features, tf.int32), word_ids], axis=1)


class FeaturesAndWordsReader(tf.Module):
    """Converts captions for `layers.text_encoders.FeaturesAndMean`.

    `features` is a `CaptionReader`, and `words` is a `Tokenizer`. A call maps
    strings `[n]` to int32 `[n, feature_dim + words]`.
    """

    def __init__(self, features, words):
        super().__init__(name="reader")
        self.features, self.words = features, words
        self.tokenizer = features.tokenizer
        self.vocabulary, self.max_tokens = words.vocabulary, words.max_tokens

    def __call__(self, captions):
        """Returns the bits of the features, followed by the ids."""
        return beside(self.features(captions), self.words(captions))


class TreeReader:
    """Replaces the `Tokenizer` of a network that reads trees.

    A graph cannot parse sentences, so `read` parses them outside the graph.
    `max_tokens` limits the number of words and nodes of a caption.
    """

    spec = tf.TensorSpec([None, None, len(FIELDS)], tf.int32, "trees")

    def __init__(self, vocabulary, max_tokens=None):
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def __call__(self, rows):
        """Checks the rows in the graph, and returns int32 `[n, nodes, 6]`."""
        if self.max_tokens is not None:
            most = most_nodes(self.max_tokens)
            nodes = tf.shape(rows)[1]
            rows = require(
                rows,
                nodes <= most,
                f"`trees` must have at most {most} nodes, padding included. "
                "Received nodes:",
                nodes,
            )
        return require_rows(
            rows,
            whole_trees(rows, self.vocabulary.size),
            "`trees` must be rows from TreeReader.read. Received: an invalid "
            "tree in row",
        )

    def read(self, captions) -> np.ndarray:
        """Parses strings, and converts all trees to the graph's input.

        Returns:
            int32 `[len(captions), nodes, 6]`.
        """
        captions = list(captions)
        texts = [c for c in captions if not isinstance(c, Tree)]
        parsed = parse_captions(texts, processes=1).trees if texts else {}
        trees = [
            c if isinstance(c, Tree) else read_tree(parsed[c], c)
            for c in captions
        ]
        arrays = tree_arrays(trees, self.vocabulary, self.max_tokens)
        return TreeRows(arrays).batch(np.arange(len(arrays)))


AT_ONCE = 10
"""Number of photos decoded in parallel. Memory grows with this number."""


def attempt(function, elements, otherwise):
    """Applies a function to each row, with a default result if it fails.

    `elements` contains tensors `[n, ...]`. `function` takes one row of each
    tensor and returns nested tensors. `otherwise` is the default result.
    Returns (results, succeeded): nested tensors `[n, ...]`, and bool `[n]`,
    whether each row succeeded.
    """
    count = tf.shape(elements[0], tf.int64)[0]
    rows = tf.data.Dataset.from_tensor_slices((tf.range(count), *elements))
    # The default value is the last row, so the batch is never empty.
    rows, results = _single(
        _tried(rows, lambda row, *values: (row, function(*values)))
        .concatenate(tf.data.Dataset.from_tensors((count, otherwise)))
        .batch(count + 1)
    )
    # Position of each row among the results; failed rows get the last position.
    last = tf.size(rows, tf.int64) - 1
    places = tf.tensor_scatter_nd_update(
        tf.fill([count + 1], last), rows[:, None], tf.range(last + 1)
    )[:-1]
    results = tf.nest.map_structure(lambda x: tf.gather(x, places), results)
    return results, places < last


def attempt_once(function, inputs, otherwise):
    """Calls a function once. Returns a default result if the call fails.

    `otherwise` is the default result. Returns (results, succeeded): nested
    tensors, and bool `[]`, whether the call succeeded.
    """
    tried = _tried(
        tf.data.Dataset.from_tensors(inputs),
        lambda *arguments: (function(*arguments), True),
    )
    instead = tf.data.Dataset.from_tensors((otherwise, False))
    return _single(tried.concatenate(instead).take(1))


def _tried(dataset, function):
    results = dataset.map(function, num_parallel_calls=AT_ONCE)
    return results.ignore_errors(log_warning=False)


def _single(dataset):
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return untuned(dataset).with_options(options).get_single_element()


class PhotoReader:
    """Converts photos to the network's input, and reports broken photos.

    Args:
        read: for photos, a function of TensorFlow operations that maps files,
            string `[n]`, to arrays `[n, ...]`; or an object with two methods:
            `decode` maps string `[]` to nested tensors, and `forward` maps a
            batch of these tensors to the network's input. For regions, a
            `features.regions.AveragedFeatures`.

    Attributes:
        max_pixels: maximum number of pixels in a photo.
    """

    def __init__(self, read):
        self.max_pixels = pictures.MAX_PIXELS
        self.read = read

    def _decode(self, image_bytes):
        content, _ = images.small_enough(image_bytes, self.max_pixels)
        if hasattr(self.read, "decode"):
            return self.read.decode(content)
        return self.read([content])[0]

    @tf.autograph.experimental.do_not_convert
    def photos(self, image_bytes, forward=None):
        """Decodes JPEG or PNG files, string `[n]`.

        `forward`, if given, replaces the `forward` method of `read`. Returns
        (rows, status): the network's input `[n, ...]`, which is undefined for
        broken photos, and the result of `status_of`.
        """
        decode = tf.function(
            self._decode, input_signature=[tf.TensorSpec([], tf.string)]
        ).get_concrete_function()
        nothing = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype),
            decode.structured_outputs,
        )
        photos, decoded = attempt(decode, (image_bytes,), nothing)
        forward = forward or getattr(self.read, "forward", tf.identity)
        return forward(photos), status_of(image_bytes, decoded, self.max_pixels)

    @tf.autograph.experimental.do_not_convert
    def regions(self, image_bytes, boxes):
        """Decodes a photo, string `[]`, and computes the features of regions.

        `boxes` is float32 `[n, 4]`, in pixels of the upright photo. Returns
        (rows, status): the features, float32 `[n, dim]`, and the status of the
        photo, string `[]`.
        """
        nothing = tf.zeros([1, 1, 3], tf.uint8), tf.ones([2])
        decoded, is_photo = attempt_once(self._decode, (image_bytes,), nothing)
        rows = self.read.of_decoded(*decoded, boxes)
        status = status_of(image_bytes[None], is_photo[None], self.max_pixels)
        return rows, status[0]


def status_of(image_bytes, decoded, max_pixels):
    """Returns the fault of each photo, string `[n]`; "" for a valid photo.

    `image_bytes` is string `[n]`. `decoded`, bool `[n]`, is whether each photo
    was decoded. A valid photo has at most `max_pixels` pixels.
    """

    def is_small(content):
        sides = images.read_sides(content, 2**62)
        return tf.reduce_prod(tf.cast(sides, tf.float64)) <= max_pixels

    def reasons():
        small, has_head = attempt(is_small, (image_bytes,), False)
        status = tf.where(
            has_head & ~small,
            f"has more than {max_pixels} pixels",
            "does not decode",
        )
        is_known = images.is_known(image_bytes)
        status = tf.where(is_known, status, "is neither JPEG nor PNG")
        is_empty = tf.equal(tf.strings.length(image_bytes), 0)
        return tf.where(is_empty, "is empty", status)

    none = tf.fill(tf.shape(image_bytes), "")
    status = tf.cond(tf.reduce_all(decoded), lambda: none, reasons)
    return tf.where(decoded, "", status)


def require_photos(value, status):
    """Returns `value` after checking that all photos were decoded."""
    return require_rows(
        value,
        tf.equal(status, ""),
        "`image_bytes` must be complete JPEG or PNG files below the size "
        "limit. Received: an invalid photo in row",
    )
