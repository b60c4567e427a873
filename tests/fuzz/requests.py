"""Malformed tensors, drawn by what a model's signatures want."""

import functools

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tbnets.serving import saved_files, zoo
from tests.fuzz.damage import damaged
from tests.photo_files import encode

JPEG, PNG, GIF = (
    encode(format=format, size=(60, 40)) for format in ("JPEG", "PNG", "GIF")
)
NO_PHOTOS = (b"", b"none", GIF, PNG[:16] + b"\0\1\0\0" * 2 + PNG[24:])
"""Nothing, something, an animation, a photo that says to be huge."""
KEEP_BROKEN_PHOTOS = ("embed_image", "localize")
GOOD = {
    "boxes": np.array([[0, 0, 60, 40], [5, 8, 30, 20]], np.float32),
    "trees": np.array(
        [
            [
                [2, 3, 1, 0, 0, 1],
                [3, 3, 1, 0, 1, 2],
                [4, 4, 1, 0, 2, 3],
                [0, 4, 2, 1, 0, 2],
                [0, 0, 3, 0, 0, 3],
            ]
        ],
        np.int32,
    ),
}
DTYPES = (np.float32, np.float64, np.int32, np.int64, np.bool_, np.complex64)
SIZES = (0, 1, 3, 156, 158, 2000, 5000)
NUMBERS = (-1, *range(6), 1e6, 2**30)
NO_NUMBERS = (np.nan, np.inf, -np.inf)


@functools.cache
def inputs_of(model):
    """Returns signature -> list of `tf.TensorSpec` of a model of the zoo."""
    graphs = saved_files.read_graphs(zoo.folder() / model / "1")
    return {
        name: [
            tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype, key)
            for key, info in sorted(signature.inputs.items())
        ]
        for name, signature in graphs[0].signature_def.items()
        if signature.inputs and name != "serving_default"
    }


def good(model, signature):
    """Returns name -> array of a request that must be answered."""
    return {spec.name: _example(spec) for spec in inputs_of(model)[signature]}


def _example(spec):
    if spec.name in GOOD:
        return GOOD[spec.name]
    if spec.name == "image_bytes":
        return np.array([JPEG] if spec.shape.rank else JPEG, object)
    if spec.dtype == tf.string:
        return np.array([b"a dog in the snow", b"a red ball"], object)
    shape = [size or 2 for size in spec.shape]
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@st.composite
def malformed(draw, model):
    """Draws (signature, name of an input that is wrong, all inputs)."""
    signature = draw(st.sampled_from(sorted(inputs_of(model))))
    inputs = good(model, signature)
    spec = draw(st.sampled_from(inputs_of(model)[signature]))
    array = inputs.pop(spec.name)
    ways = ("values", "values", "values", "shape", "type", "missing", "surplus")
    way = draw(st.sampled_from(ways))
    if way == "values":
        array = array.copy()
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.integers(0, array.size - 1))
            array.flat[place] = draw(_values(spec))
    elif way == "shape":
        array = np.resize(array, draw(_other_shape(array.shape)))
    elif way == "type":
        array = np.zeros(array.shape, draw(st.sampled_from(DTYPES)))
    if way != "missing":
        inputs[spec.name] = array
    if way == "surplus":
        inputs["surplus"] = np.zeros([2], np.float32)
    return signature, spec.name, inputs


def _values(spec):
    if spec.name == "image_bytes":
        others = damaged(JPEG) | damaged(PNG) | st.binary(max_size=5000)
        return st.sampled_from(NO_PHOTOS) | others
    if spec.dtype == tf.string:
        words = st.sampled_from((b"a dog ", b"a", b" \0 ?! \xf0\x9f"))
        counts = st.sampled_from((1, 1000, 50_000))
        texts = st.builds(lambda word, count: word * count, words, counts)
        return texts | st.binary(max_size=5000)
    return st.sampled_from(NUMBERS + NO_NUMBERS * spec.dtype.is_floating)


@st.composite
def _other_shape(draw, shape):
    """Draws a shape that has another size, or one more or less."""
    place = draw(st.integers(0, len(shape)))
    new = draw(st.sampled_from(((), *((size,) for size in SIZES))))
    is_kept = draw(st.booleans())
    return shape[:place] + new + shape[place + (not is_kept) :]


def wanted(model, signature, changed, inputs):
    """Returns "refused", "answered", or "" if both may be right, over REST.

    `changed` is the name of the input that may be malformed. JSON has one type
    of numbers, and no shape of an empty array.
    """
    specs = {spec.name: spec for spec in inputs_of(model)[signature]}
    if inputs.keys() != specs.keys():
        return "refused"
    spec, array = specs[changed], inputs[changed]
    is_string = spec.dtype == tf.string
    is_of_type = (array.dtype == object) == is_string
    if not is_of_type or not spec.shape.is_compatible_with(array.shape):
        return "" if not array.size else "refused"
    if changed == "trees":
        return "refused" if (array < 0).any() else ""
    if changed == "image_bytes":
        if not any(photo in NO_PHOTOS for photo in array.flat):
            return ""
        return "answered" if signature in KEEP_BROKEN_PHOTOS else "refused"
    if is_string:
        return "answered" if 0 < array.size <= 2000 else ""
    if array.dtype == bool:
        return "refused" if array.size else ""
    return "" if np.isfinite(array).all() else "refused"
