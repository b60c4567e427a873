"""Photos that are decoded each by itself, in the graph.

A server that batches puts the photos of several clients into one call. An op
that meets a broken photo ends the whole call, so each photo is decoded in a
call of its own: an element of a `tf.data` pipeline that leaves out what fails.
Its ops are TensorFlow's own, which run wherever a SavedModel does.
"""

import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.data import photo_kinds
from tbnets.data.batches import untuned
from tbnets.errors import InputError
from tbnets.serving.inputs import require_rows

AT_ONCE = 10
"""Photos decoded at a time; each of them may take its memory."""


def attempt(function, elements, otherwise):
    """Calls a function for each row; where it fails, something else stands.

    Args:
        function: of a row of each of the elements; returns nested tensors.
        elements: tuple of tensors `[n, ...]`; n may be 0.
        otherwise: nested tensors of the shapes that the function returns.

    Returns:
        (results, succeeded): nested tensors `[n, ...]` and bool `[n]`.
    """
    count = tf.shape(elements[0], tf.int64)[0]
    rows = tf.data.Dataset.from_tensor_slices((tf.range(count), *elements))
    # One that always succeeds stands at the end: there is no batch of none.
    rows, results = _single(
        _tried(rows, lambda row, *one: (row, function(*one)))
        .concatenate(tf.data.Dataset.from_tensors((count, otherwise)))
        .batch(count + 1)
    )
    # Where each row is among the results; the last one where it is not.
    last = tf.size(rows, tf.int64) - 1
    places = tf.tensor_scatter_nd_update(
        tf.fill([count + 1], last), rows[:, None], tf.range(last + 1)
    )[:-1]
    results = tf.nest.map_structure(lambda x: tf.gather(x, places), results)
    return results, places < last


def attempt_once(function, inputs, otherwise):
    """Calls a function; where it fails, something else stands.

    Args:
        function: of the inputs; returns nested tensors, of any shapes.
        inputs: tuple of tensors.
        otherwise: nested tensors of the same ranks.

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
    """Returns what a function makes of elements, without those it fails on."""
    made = dataset.map(function, num_parallel_calls=AT_ONCE)
    return made.ignore_errors(log_warning=False)


def _single(dataset):
    """Returns the one element of a dataset, which is read as it stands."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return untuned(dataset).with_options(options).get_single_element()


class PhotoReader:
    """Turns photos into what a network takes, and tells which are none.

    Args:
        read: for photos, a function of TensorFlow operations, string `[n]` ->
            `[n, ...]`. Where it has them, its methods `decode`, string `[]` ->
            `[...]`, or a tuple, and `forward`, of a batch of these, are called
            instead: what decodes is then apart from a network that follows. For
            regions, `features.regions.AveragedFeatures`, or another
            with its methods `decode`, string `[]` -> `(pixels, sides)`, and
            `of_decoded`, of these and float32 boxes `[n, 4]` -> `[n, dim]`.

    Attributes:
        max_pixels: how many pixels a photo may have.
        is_traced: whether it is part of a graph, and so can not change.
    """

    def __init__(self, read):
        self.max_pixels = photo_kinds.MAX_PIXELS
        self.is_traced = False
        self._read = read

    def _decode(self, image_bytes):
        """Decodes a photo once its sides are known to be allowed."""
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
            (rows, status): what the network takes, `[n, ...]`; and string
            `[n]`, "" of a photo, else what is wrong with it, a few words
            after "which": its row means nothing.
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
            (rows, status): float32 `[n, dim]`, and string `[]`, as `photos`
            tells it.
        """
        nothing = tf.zeros([1, 1, 3], tf.uint8), tf.ones([2])
        decoded, is_photo = attempt_once(self._decode, (image_bytes,), nothing)
        rows = self._read.of_decoded(*decoded, boxes)
        status = status_of(image_bytes[None], is_photo[None], self.max_pixels)
        return rows, status[0]


def status_of(image_bytes, decoded, max_pixels):
    """Tells what is wrong with photos.

    Args:
        image_bytes: string `[n]`.
        decoded: bool `[n]`, whether they were decoded.
        max_pixels: how many pixels they may have.

    Returns:
        string `[n]`, "" of what was decoded, else a few words after "which".
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
    """Lets endpoints that were not traced yet take smaller photos alone.

    Args:
        endpoints: `Endpoints`.
        max_pixels: how many pixels a photo may have.

    Raises:
        ValueError: they take no photos or were traced, or it is no such
            number.
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
    """Returns a value, once all photos that it is of are good.

    Args:
        value: tensor.
        status: string `[n]`, as `PhotoReader` returns it.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, naming the first
            photo that is none.
    """
    return require_rows(
        value,
        tf.equal(status, ""),
        "`image_bytes` must be whole JPEG or PNG files, not too large. "
        "Received: another one in row",
    )
