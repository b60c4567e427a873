"""Decodes photos in the graph, each separately.

If a server batches requests, a call contains the photos of several clients. An
op that fails on a broken photo would fail the whole call. So each photo is
decoded separately, as an element of a `tf.data` pipeline that drops elements
that fail. TensorFlow itself defines all ops of the pipeline, so every server
can run them.
"""

import tensorflow as tf

from tbnets.data import images, pictures
from tbnets.data.batches import untuned
from tbnets.serving.inputs import require_rows

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
