"""Exports networks for LiteRT, which runs them without TensorFlow.

`checksums` describes the exported folder, and `tbnets.lite` loads it.
"""

import contextlib
import json
import tempfile
import warnings

import numpy as np
import tensorflow as tf

from tbnets.checks import check_finite
from tbnets.data.pictures import read_square
from tbnets.errors import InputError, check_choice
from tbnets.features.caption_encoder import CaptionReader
from tbnets.files import write_json, write_text
from tbnets.serving.checksums import (
    CHARACTERS,
    IMAGE,
    KINDS,
    LITERT_FORMAT,
    MODEL,
    PIECES,
    TEXT,
    VOCABULARY,
    hash_files,
)
from tbnets.serving.export import (
    check_new,
    describe_signature,
    inputs_of,
    new_model,
    versions,
)
from tbnets.serving.inputs import FeaturesAndWordsReader, beside
from tbnets.startup import quiet_tensorflow
from tbnets.text.plain_tokenizer import PADDING_ID, UNKNOWN_ID
from tbnets.text.vocabulary import Tokenizer, character_tables
from tbnets.text.word_pieces import WordPieces

_LEAST_COSINE = {"float32": 0.999, "float16": 0.999, "int8": 0.8}
"""Minimum cosine between the embeddings of the original and converted
network."""
_COMPARED = 8
"""Number of photos that are embedded for the comparison."""
_KEY = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def write_litert(network, endpoints, path, kind, photos=(), metadata=None):
    """Writes a network as a folder of LiteRT models.

    Args:
        network: a built `EmbeddingNetwork`.
        endpoints: the network's `Endpoints`, which take photos and captions.
        path: folder to write, which must not exist.
        kind: `float32`; `float16`, which halves the size; or `int8`, which
            uses integers for weights and computation.
        photos: for `int8`, about 100 photos similar to the training photos,
            in a form that `pictures.read_content` accepts. They determine the
            ranges of the activations.
        metadata: JSON-ready dict to store in `model.json`.

    Returns:
        (path, cosines): `path` as a `pathlib.Path`, and a dict that maps each
        model file to the smallest cosine of its outputs with the network's.
    """
    path = check_new(path)
    check_choice("litert", kind, KINDS)
    check_convertible(endpoints)
    side, forward = pixels_of(network, endpoints.photos)
    squares = [read_square(photo, side) for photo in photos]
    reader = endpoints.tokenizer
    if kind == "int8" and not squares:
        expected = "be photos like the training photos, for --litert=int8"
        raise InputError("images", expected, "none")
    functions = _functions(network, side, forward, reader)
    with new_model(path) as folder:
        for name, function in functions.items():
            samples = squares if name == IMAGE else ()
            content = _converted(function, kind, samples)
            (folder / name).write_bytes(content)
        cosines = _compare(folder, functions, kind, squares, reader)
        if pieces := _pieces_of(reader):
            write_text(folder / PIECES, pieces.config)
        if reader.vocabulary:
            reader.vocabulary.save(folder / VOCABULARY)
            tables = json.dumps(
                character_tables(), ensure_ascii=False, separators=(",", ":")
            )
            write_text(folder / CHARACTERS, tables)
        record = _described(folder, functions, kind, side, reader)
        record |= {"cosines": cosines, "metadata": metadata or {}}
        write_json(folder / MODEL, record)
    return path, cosines


def check_convertible(endpoints):
    """Raises an error if LiteRT cannot run the network of `Endpoints`."""
    names, reader = endpoints.functions, endpoints.tokenizer
    reason = ""
    if not {"embed_image", "embed_text"} <= names.keys():
        reason = "it finds boxes of phrases, which need the boxes of a photo"
    elif "compare" in names:
        reason = "it compares embeddings by a third network"
    elif type(reader) is not Tokenizer and not _pieces_of(reader):
        reason = "it reads trees, text features or the tokens of Keras Hub"
    elif endpoints.photos is None:
        reason = "it reads image features; add --cnn_weights=imagenet"
    if reason:
        raise _unconvertible(reason)


def _pieces_of(reader):
    """Returns the `WordPieces` of a reader of captions, or None."""
    pieces = getattr(reader, "tokenizer", reader)
    return pieces if isinstance(pieces, WordPieces) else None


def _unconvertible(reason):
    expected = "be used with a network of photos and words"
    return InputError("litert", expected, reason)


def pixels_of(network, reader):
    """Returns the side of the photos, and a function that prepares them.

    The function maps float32 pixels `[n, side, side, 3]` to the network's image
    input.
    """
    shape = network.input_shapes["images"][1:]
    if len(shape) == 3:
        return shape[0], tf.identity
    read = reader.read
    parts = getattr(read, "parts", (read,))
    sides = {part.photo_size for part in parts}
    if any(callable(part.resizer) for part in parts):
        reason = "its Keras Hub preset resizes photos in its own way"
        raise _unconvertible(reason)
    if len(sides) > 1:
        raise _unconvertible(f"it reads photos of {sorted(sides)} pixels")
    if read is parts[0]:
        return sides.pop(), read.forward
    return sides.pop(), lambda pixels: read.forward((pixels,) * len(parts))


def _functions(network, side, forward, reader):
    pixels = tf.TensorSpec([1, side, side, 3], tf.uint8, "pixels")
    ids = [tf.TensorSpec([1, None], tf.int32, name) for name in _sizes(reader)]

    @tf.function(input_signature=[pixels], autograph=False)
    def embed_image(pixels):
        images = forward(tf.cast(pixels, tf.float32))
        return {"embeddings": network.embed_images(images, training=False)}

    @tf.function(input_signature=ids, autograph=False)
    def embed_text(first, *others):
        inputs = first
        if isinstance(reader, FeaturesAndWordsReader):
            inputs = beside(reader.features.layer(first), *others)
        elif isinstance(reader, CaptionReader):
            inputs = reader.layer(first)
        return {"embeddings": network.embed_text(inputs, training=False)}

    return {
        IMAGE: embed_image.get_concrete_function(),
        TEXT: embed_text.get_concrete_function(),
    }


def _sizes(reader):
    """Returns the inputs of `text.tflite`: {name: number of its ids}."""
    pieces, words = _pieces_of(reader), reader.vocabulary
    sizes = {"piece_ids": pieces.size} if pieces else {}
    return sizes | ({"token_ids": words.size} if words else {})


def _converted(function, kind, squares):
    module = tf.Module()
    module.function, module.used_variables = function, [*function.variables]
    with tempfile.TemporaryDirectory() as place, _silent():
        # Only a SavedModel keeps the names of inputs and outputs.
        tf.saved_model.save(module, place, {_KEY: function})
        converter = tf.lite.TFLiteConverter.from_saved_model(
            place, signature_keys=[_KEY]
        )
        if kind != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if kind == "int8" and squares:
            converter.representative_dataset = lambda: (
                {"pixels": square[None]} for square in squares
            )
        try:
            return converter.convert()
        # Unsupported ops raise a private exception class.
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise _unconvertible(f"LiteRT lacks an op: {reason}") from error


@contextlib.contextmanager
def _silent():
    with quiet_tensorflow(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compare(folder, functions, kind, squares, reader):
    rng = np.random.default_rng(0)
    [pixels] = inputs_of(functions[IMAGE]).values()
    # Coarse noise, as photos are smooth too.
    noise = rng.integers(0, 256, (_COMPARED, 8, 8, 3)).astype(np.uint8)
    pictures = squares[:_COMPARED] or [
        read_square(picture, pixels.shape[1]) for picture in noise
    ]
    texts = [
        {
            name: rng.integers(1, size, (1, words), np.int32)
            for name, size in _sizes(reader).items()
        }
        for words in (1, 3, 12, 30)
    ]
    photos = [{"pixels": picture[None]} for picture in pictures]
    cosines = {}
    for name, inputs in {IMAGE: photos, TEXT: texts}.items():
        function, model = functions[name], (folder / name).read_bytes()
        with _silent():
            run = open_interpreter(model).get_signature_runner(_KEY)
            found = [run(**x)["embeddings"] for x in inputs]
        expected = [
            function(*map(tf.constant, x.values()))["embeddings"]
            for x in inputs
        ]
        found, expected = np.concatenate(found), np.concatenate(expected)
        check_finite(f"embeddings of {name}", found)
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        cosine = float(((expected * found).sum(axis=1) / norms).min())
        if not cosine >= _LEAST_COSINE[kind]:
            reason = f"{name} has a cosine of {cosine:.3f} with the network"
            raise _unconvertible(reason)
        cosines[name] = round(cosine, 6)
    return cosines


def open_interpreter(content):
    """Returns the interpreter of `ai-edge-litert`, or else TensorFlow's."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tf.lite.Interpreter  # noqa: N806
    return Interpreter(model_content=content, num_threads=1)


def _described(folder, functions, kind, side, reader):
    signatures = {n: describe_signature(f) for n, f in functions.items()}
    [embeddings] = signatures[TEXT]["outputs"].values()
    return {
        "format": LITERT_FORMAT,
        "kind": kind,
        "embedding_dim": embeddings["shape"][-1],
        "preprocessing": {
            "side": side,
            "colours": "RGB, 0 to 255",
            "orientation": "upright, after the EXIF orientation",
            "resize": "bilinear with antialias, aspect ratio not kept",
        },
        "tokenisation": {
            "max_tokens": reader.max_tokens,
            "max_pieces": getattr(_pieces_of(reader), "max_tokens", None),
            "padding_id": PADDING_ID,
            "unknown_id": UNKNOWN_ID,
        },
        "signature_key": _KEY,
        "signatures": signatures,
        **versions(),
        "sha256": hash_files(folder),
    }
