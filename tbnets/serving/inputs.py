"""Checks and reads the inputs of a served graph.

A server runs every request of its clients. A caption of the wrong rank would
end the process in an op that trusts its input, and NaN would be returned as a
result. `guarded` checks each input of a signature; every exported function uses
it.
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
from tbnets.data import photo_kinds
from tbnets.data.batches import untuned
from tbnets.data.images import read_content
from tbnets.data.photo_kinds import require
from tbnets.errors import InputError, check_kind
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

# Decoding of single photos in the graph.
#
# A server that batches puts the photos of several clients into one call. An op
# that meets a broken photo ends the whole call, so each photo is decoded
# separately, as an element of a `tf.data` pipeline that drops failures. Its ops
# are TensorFlow's own, so they run in every SavedModel.

AT_ONCE = 10
"""Photos decoded at once; memory grows with their number."""


def attempt(function, elements, otherwise):
    """Calls a function for each row; failed rows get a default value.

    Args:
        function: function of one row of each element; returns nested tensors.
        elements: tuple of tensors `[n, ...]`; n may be 0.
        otherwise: nested tensors with the shapes of the function's results.

    Returns:
        (results, succeeded): nested tensors `[n, ...]` and bool `[n]`.
    """
    count = tf.shape(elements[0], tf.int64)[0]
    rows = tf.data.Dataset.from_tensor_slices((tf.range(count), *elements))
    # The default value is the last row, since a batch cannot be empty.
    rows, results = _single(
        _tried(rows, lambda row, *one: (row, function(*one)))
        .concatenate(tf.data.Dataset.from_tensors((count, otherwise)))
        .batch(count + 1)
    )
    # Position of every row among the results; a failed row gets the last.
    last = tf.size(rows, tf.int64) - 1
    places = tf.tensor_scatter_nd_update(
        tf.fill([count + 1], last), rows[:, None], tf.range(last + 1)
    )[:-1]
    results = tf.nest.map_structure(lambda x: tf.gather(x, places), results)
    return results, places < last


def attempt_once(function, inputs, otherwise):
    """Calls a function; if it fails, returns a default value.

    Args:
        function: function of the inputs; returns nested tensors of any shapes.
        inputs: tuple of tensors.
        otherwise: nested tensors of equal ranks.

    Returns:
        (results, succeeded): nested tensors and bool `[]`.
    """
    tried = _tried(
        tf.data.Dataset.from_tensors(inputs),
        lambda *one: (function(*one), True),
    )
    instead = tf.data.Dataset.from_tensors((otherwise, False))
    return _single(tried.concatenate(instead).take(1))


def _tried(dataset, function):
    """Returns the results of a function on elements, without failures."""
    made = dataset.map(function, num_parallel_calls=AT_ONCE)
    return made.ignore_errors(log_warning=False)


def _single(dataset):
    """Returns the only element of a dataset, read without optimizations."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return untuned(dataset).with_options(options).get_single_element()


class PhotoReader:
    """Turns photos into the network's input, and reports broken photos.

    Args:
        read: for photos, a function of TensorFlow operations, string `[n]` ->
            `[n, ...]`. If it has methods `decode`, string `[]` -> `[...]` or a
            tuple, and `forward`, of a batch of decoded photos, these methods
            are called instead, which separates decoding from a network that
            follows. For regions, a `features.regions.AveragedFeatures`, or an
            object with its methods `decode`, string `[]` -> `(pixels, sides)`,
            and `of_decoded`, of the pixels and sides and float32 boxes `[n, 4]`
            -> `[n, dim]`.

    Attributes:
        max_pixels: maximum number of pixels in a photo.
        is_traced: whether the reader is part of a graph, and so cannot change.
    """

    def __init__(self, read):
        self.max_pixels = photo_kinds.MAX_PIXELS
        self.is_traced = False
        self._read = read

    def _decode(self, image_bytes):
        """Decodes a photo after checking its size."""
        self.is_traced = True
        content, _ = photo_kinds.small_enough(image_bytes, self.max_pixels)
        if hasattr(self._read, "decode"):
            return self._read.decode(content)
        return self._read([content])[0]

    @tf.autograph.experimental.do_not_convert
    def photos(self, image_bytes):
        """Reads photos.

        Args:
            image_bytes: string `[n]`, JPEG or PNG files.

        Returns:
            (rows, status): the network's input, `[n, ...]`; and string `[n]`,
            "" for a photo, otherwise its fault, phrased to follow "which". The
            row of a broken photo has no meaning.
        """
        decode = tf.function(
            self._decode, input_signature=[tf.TensorSpec([], tf.string)]
        ).get_concrete_function()
        nothing = tf.nest.map_structure(
            lambda one: tf.zeros(one.shape, one.dtype),
            decode.structured_outputs,
        )
        photos, decoded = attempt(decode, (image_bytes,), nothing)
        forward = getattr(self._read, "forward", tf.identity)
        return forward(photos), status_of(image_bytes, decoded, self.max_pixels)

    @tf.autograph.experimental.do_not_convert
    def regions(self, image_bytes, boxes):
        """Reads regions of a photo.

        Args:
            image_bytes: string `[]`, a JPEG or PNG file.
            boxes: float32 `[n, 4]` in pixels of the upright photo.

        Returns:
            (rows, status): float32 `[n, dim]`, and string `[]`, as in `photos`.
        """
        nothing = tf.zeros([1, 1, 3], tf.uint8), tf.ones([2])
        decoded, is_photo = attempt_once(self._decode, (image_bytes,), nothing)
        rows = self._read.of_decoded(*decoded, boxes)
        status = status_of(image_bytes[None], is_photo[None], self.max_pixels)
        return rows, status[0]


def status_of(image_bytes, decoded, max_pixels):
    """Returns the faults of photos.

    Args:
        image_bytes: string `[n]`.
        decoded: bool `[n]`, whether they were decoded.
        max_pixels: maximum number of pixels in a photo.

    Returns:
        string `[n]`, "" for a decoded photo, otherwise the fault, phrased to
        follow "which".
    """

    def is_small(one):
        sides = photo_kinds.read_sides(one, 2**62)
        return tf.reduce_prod(tf.cast(sides, tf.float64)) <= max_pixels

    def reasons():
        small, has_head = attempt(is_small, (image_bytes,), False)
        status = tf.where(
            has_head & ~small,
            f"has more than {max_pixels} pixels",
            "does not decode",
        )
        is_known = photo_kinds.is_known(image_bytes)
        status = tf.where(is_known, status, "is of another kind")
        is_empty = tf.equal(tf.strings.length(image_bytes), 0)
        return tf.where(is_empty, "is empty", status)

    none = tf.fill(tf.shape(image_bytes), "")
    status = tf.cond(tf.reduce_all(decoded), lambda: none, reasons)
    return tf.where(decoded, "", status)


def limit_pixels(endpoints, max_pixels):
    """Sets the largest photo of endpoints that have not been traced.

    Args:
        endpoints: `Endpoints`.
        max_pixels: maximum number of pixels in a photo.

    Raises:
        ValueError: the endpoints take no photos or have been traced, or the
            number is invalid.
    """
    most = photo_kinds.MAX_PIXELS
    checked_number("max_pixels", max_pixels, 1, whole=True, most=most)
    photos = endpoints.photos
    if photos is None or photos.is_traced:
        fault = "takes none" if photos is None else "was exported before"
        raise InputError(
            "max_pixels",
            "come with a model that takes photos, and with new endpoints",
            f"max_pixels={max_pixels}, and one that {fault}",
            "Leave it out, or build the endpoints again.",
        )
    photos.max_pixels = max_pixels


def require_photos(value, status):
    """Returns a value, after checking that all its photos are good.

    Args:
        value: tensor.
        status: string `[n]`, from `PhotoReader`.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, a photo is broken;
            the message names the first.
    """
    return require_rows(
        value,
        tf.equal(status, ""),
        "`image_bytes` must be whole JPEG or PNG files, not too large. "
        "Received: another one in row",
    )


MOST_WORDS = 200
"""Words of a caption that a served graph reads, unless training captions are
longer."""


def guarded(function):
    """Returns a function that rejects inputs outside its signature.

    When the graph runs, the function checks rank and known dimensions, and that
    floats are finite; the error names the row with NaN or infinity.

    Args:
        function: `tf.function` with an input signature.

    Returns:
        A concrete function with an equal signature.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(one, spec) for one, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    """Returns an input after checking it against its spec."""
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
    """Returns a value, after checking that all its rows are good.

    Args:
        value: tensor.
        good: bool `[n]`, or `[]` for a single value.
        expectation: message for a bad row, before its number.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, a row is bad; the
            message names the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


def bounded(tokenizer):
    """Returns a reader of captions with a limit on their words.

    Args:
        tokenizer: a `Tokenizer`, which gets a limit if it has none; or another
            reader or None, which is returned unchanged.
    """
    if type(tokenizer) is Tokenizer and tokenizer.max_tokens is None:
        return Tokenizer(tokenizer.vocabulary, MOST_WORDS)
    return tokenizer


IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Endpoints that embed -> name of their argument in errors."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts one input to a tensor; checks its shape and type.

    Args:
        argument: name of the input in messages.
        spec: `tf.TensorSpec` of the input.
        values: list of strings, or float array; for `IMAGE_BYTES` photos, as
            `images.read_content` takes them.

    Returns:
        A tensor.

    Raises:
        TypeError: a string or photo has the wrong type.
        ValueError: the input is not a list, holds no numbers, or has the wrong
            shape.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(one) for one in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    advice = "Use such features as it was trained on."
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, "numbers", shape, advice, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    """Returns strings as bytes; an error names the first non-string."""
    advice = "Leave it out, or write it as text."
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        name = f"{argument}[{row}]"
        check_kind(name, value, (str, bytes), advice)
        try:
            encoded.append(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError as error:
            raise InputError(
                name,
                "be text",
                f"{name}={value!r}, which UTF-8 has no bytes for",
                f"{advice}",
            ) from error
    return encoded


def is_trees(spec):
    """Returns whether an input takes trees that `TreeReader.read` makes."""
    return spec.name == TreeReader.spec.name


class TreeReader:
    """Replaces a `Tokenizer` for a network that reads trees.

    A graph cannot parse, so it takes rows of trees that `read` makes outside
    the graph.

    Args:
        vocabulary: `Vocabulary` of the words in the trees.
        max_tokens: number of words after which a caption is cut; None never to
            cut. Trees with more nodes than such captions have are rejected.
    """

    spec = tf.TensorSpec([None, None, len(FIELDS)], tf.int32, "trees")

    def __init__(self, vocabulary, max_tokens=None):
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def __call__(self, rows):
        """Returns rows of trees unchanged, after checking them.

        Args:
            rows: int32 `[n, nodes, 6]`.

        Raises:
            tf.errors.InvalidArgumentError: when the graph runs, a row is not a
                tree or there are too many nodes; the message names the rows.
        """
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
            "`trees` must be rows that TreeReader.read made. Received: "
            "another in row",
        )

    def read(self, captions) -> np.ndarray:
        """Returns captions as the graph takes them.

        Args:
            captions: list of strings, which the embedded parser parses, and of
                `text.trees.Tree`s.

        Returns:
            int32 `[len(captions), nodes, 6]`.

        Raises:
            ModuleNotFoundError: strings are given, and a package of the parser
                is missing.
        """
        captions = list(captions)
        texts = [one for one in captions if not isinstance(one, Tree)]
        parsed = parse_captions(texts, processes=1).trees if texts else {}
        trees = [
            one if isinstance(one, Tree) else read_tree(parsed[one], one)
            for one in captions
        ]
        arrays = tree_arrays(trees, self.vocabulary, self.max_tokens)
        return TreeRows(arrays).batch(np.arange(len(arrays)))
