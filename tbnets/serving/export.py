"""Exports a trained network as a SavedModel that takes raw input.

A SavedModel has a signature for each of its `Endpoints`. It loads wherever
TensorFlow and TF Text are, without this package: tokeniser, word table and
image decoding are part of its graph.
"""

import dataclasses
import importlib.metadata
import pathlib

import tensorflow as tf

import tbnets
from tbnets.errors import ExistingFileError
from tbnets.errors import FileError
from tbnets.errors import InputError
from tbnets.files import new_folder
from tbnets.files import write_json
from tbnets.losses import distances
from tbnets.serving.half_precision import copy_halved
from tbnets.serving.half_precision import with_halves
from tbnets.serving.ops import check_ops
from tbnets.serving.served import VOCABULARY_FILE
from tbnets.serving.served_model import METADATA_FILE
from tbnets.serving.tree_reader import TreeReader
from tbnets.text.vocabulary import Tokenizer
from tbnets.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """What a SavedModel can be asked.

    Args:
        functions: name -> `tf.function` with an input signature, which
            returns a dict of tensors. The names are the signatures', and stay
            in a loaded SavedModel: `loaded.embed_text(captions)`.
        default: which of them is the default signature.
        tokenizer: the `Tokenizer` that they use, or None.
    """

    functions: dict
    default: str
    tokenizer: Tokenizer | None = None


class ServingModule(tf.Module):
    """Holds what a SavedModel needs: functions, and what these read.

    Of the Keras model only the variables that the endpoints read are kept,
    and of the endpoints what was traced: TensorFlow would trace a
    `tf.function` once more, and keep both.

    Args:
        endpoints: `Endpoints`.
        half_precision: whether weights are kept as float16.
    """

    def __init__(self, endpoints, half_precision=False):
        super().__init__(name="tbnets")
        self.tokenizer = endpoints.tokenizer
        functions, used = {}, {}
        for name, function in endpoints.functions.items():
            functions[name] = function.get_concrete_function()
            used.update({id(one): one for one in functions[name].variables})
        if half_precision:
            halves = copy_halved(used.values())
            used.update(halves)
            for name, function in functions.items():
                functions[name] = with_halves(function, halves)
        self.used_variables = list(used.values())
        for name, function in functions.items():
            setattr(self, name, function)


def two_branch_endpoints(
    model, tokenizer, *, image_shape, read_photos=None, text_dim=None
):
    """Returns the endpoints of a model that embeds images and texts.

    Signatures (`n` images, `m` captions, either may be 0):

    - `embed_text`: `captions` string `[m]` (or `text_features` float32 `[m,
      text_dim]`, or `trees` int32 `[m, nodes, 6]`) -> `embeddings` float32
      `[m, embedding_dim]`; also the default;
    - `embed_image`: `image_features` float32 `[n, *image_shape]` or
      `image_bytes` string `[n]` -> `embeddings` `[n, embedding_dim]`;
    - `score`: both inputs -> `similarities` `[n, m]`: cosines, or the logits
      of a model that learns to compare;
    - `compare`, of such a model alone, whose embeddings have no meaningful
      cosines: `image_embeddings` float32 `[n, embedding_dim]` and
      `text_embeddings` `[m, embedding_dim]` -> `similarities` `[n, m]`;
    - `embed_features`: where photos are turned into feature vectors first,
      `image_features` float32 `[n, feature_dim]` -> `embeddings`.

    Args:
        model: has `embed_images(images, training)` and `embed_text(texts,
            training)`, both to float32 unit vectors `[n, embedding_dim]`;
            one that learns to compare has `learned_similarity`, True, and
            `similarities(image_embeddings, text_embeddings)`, too.
        tokenizer: turns string `[m]` into what `embed_text` takes: a
            `Tokenizer` or a `layers.fisher_vectors.CaptionReader`; a
            `serving.tree_reader.TreeReader` where texts are trees; None where
            they are feature vectors.
        image_shape: shape of one image as the model takes it: `(feature_dim,)`
            or `(size, size, 3)`.
        read_photos: None to serve such arrays; to serve JPEG and PNG files, a
            function of TensorFlow operations, string `[n]` -> `[n,
            *image_shape]`, as `images.decode_images` or a
            `features.photo_features.PhotoFeatures`.
        text_dim: dimension of text features; None where there is a tokenizer.

    Raises:
        ValueError: neither or both of `tokenizer` and `text_dim` are given.
    """
    text = _text_spec(tokenizer, text_dim)
    arrays = tf.TensorSpec([None, *image_shape], tf.float32, "image_features")
    photos = tf.TensorSpec([None], tf.string, "image_bytes")
    image = arrays if read_photos is None else photos
    read_text, read_image = tokenizer or tf.identity, read_photos or tf.identity
    learned = getattr(model, "learned_similarity", False)
    similarities = model.similarities if learned else distances.similarities

    # Functions of their own, so that the SavedModel has them once.
    @tf.function(input_signature=[text])
    def text_embeddings(texts):
        return model.embed_text(read_text(texts), training=False)

    @tf.function(input_signature=[arrays])
    def array_embeddings(rows):
        return model.embed_images(rows, training=False)

    @tf.function(input_signature=[image])
    def image_embeddings(images):
        rows = tf.ensure_shape(read_image(images), arrays.shape)
        return array_embeddings(rows)

    @tf.function(input_signature=[text])
    def embed_text(texts):
        return {"embeddings": text_embeddings(texts)}

    @tf.function(input_signature=[image])
    def embed_image(images):
        return {"embeddings": image_embeddings(images)}

    @tf.function(input_signature=[image, text])
    def score(images, texts):
        embeddings = image_embeddings(images), text_embeddings(texts)
        return {"similarities": similarities(*embeddings)}

    @tf.function(input_signature=[arrays])
    def embed_features(rows):
        return {"embeddings": array_embeddings(rows)}

    functions = {
        "embed_text": embed_text,
        "embed_image": embed_image,
        "score": score,
    }
    if read_photos is not None and len(image_shape) == 1:
        functions["embed_features"] = embed_features
    if learned:
        functions["compare"] = _comparison(model)
    return Endpoints(functions, "embed_text", tokenizer)


def _comparison(model):
    """Returns the endpoint that compares embeddings."""
    images, texts = (
        tf.TensorSpec([None, model.embedding_dim], tf.float32, name)
        for name in ("image_embeddings", "text_embeddings")
    )

    @tf.function(input_signature=[images, texts])
    def compare(images, texts):
        return {"similarities": model.similarities(images, texts)}

    return compare


def export_saved_model(
    model, vocabulary, path, *, metadata=None, half_precision=False, **shapes
):
    """Writes a model that embeds images and texts as a SavedModel.

    Args:
        model: a built network, as `models.embedding_network.EmbeddingNetwork`.
        vocabulary: the run's `Vocabulary`; a `Tokenizer` if captions are to
            be cut at its `max_tokens`; a `CaptionReader` or None if the
            network takes text features.
        path: as in `write_saved_model`.
        metadata: as in `write_saved_model`.
        half_precision: as in `write_saved_model`.
        **shapes: `image_shape`, `read_photos` and `text_dim`, as in
            `two_branch_endpoints`, which lists the signatures too.

    Returns:
        `path` as a `pathlib.Path`.

    Example:
        tbnets.export_saved_model(
            network, vocabulary, "served/1", image_shape=(512,))
    """
    _refuse_existing(pathlib.Path(path))
    tokenizer = vocabulary
    if isinstance(vocabulary, Vocabulary):
        tokenizer = Tokenizer(vocabulary)
    endpoints = two_branch_endpoints(model, tokenizer, **shapes)
    return write_saved_model(endpoints, path, metadata, half_precision)


def write_saved_model(endpoints, path, metadata=None, half_precision=False):
    """Writes endpoints as a SavedModel.

    `path` is complete or absent; what killed exports left beside it goes.

    Args:
        endpoints: `Endpoints`.
        path: folder to write, which must not exist, by custom `<name>/<n>`
            with `n` from `next_version`: TensorFlow Serving's layout.
        metadata: JSON-ready dict to keep in `assets.extra/tbnets.json`.
        half_precision: whether weights are kept as float16, in half the
            space; they are still computed with as float32.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        FileExistsError: If `path` exists.
        OSError: If it cannot be written; nothing half-written stays.
        ValueError: If the graph has an op that TensorFlow Serving does not
            know, or a weight is beyond what float16 holds.
    """
    path = pathlib.Path(path)
    _refuse_existing(path)
    module = ServingModule(endpoints, half_precision)
    signatures = {name: getattr(module, name) for name in endpoints.functions}
    tokenizer = endpoints.tokenizer
    for name, function in signatures.items():
        check_ops(name, function.graph.as_graph_def())
    description = _describe(signatures, tokenizer, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_folder(path) as folder:
            tf.saved_model.save(
                module,
                str(folder),
                signatures={
                    "serving_default": signatures[endpoints.default],
                    **signatures,
                },
                # Nobody trains what is served, and a gradient that is written
                # out by hand can not always be saved.
                options=tf.saved_model.SaveOptions(
                    experimental_custom_gradients=False
                ),
            )
            (folder / METADATA_FILE).parent.mkdir()
            write_json(folder / METADATA_FILE, description)
            if tokenizer is not None:
                tokenizer.vocabulary.save(folder / VOCABULARY_FILE)
            _refuse_existing(path)
    except (OSError, tf.errors.OpError) as error:
        if isinstance(error, FileExistsError):
            raise
        raise FileError(
            "`path` must be a place that can be written. Received: "
            f"path='{path}', which failed: {error}. Nothing was left there; "
            "free some space or choose another folder."
        ) from error
    return path


def next_version(folder):
    """Returns the number of a new version in TensorFlow Serving's layout.

    Args:
        folder: the model's folder, `<name>/`, whose numbered subfolders are
            versions; it need not exist.

    Returns:
        One more than the largest number there, from 1.
    """
    folder = pathlib.Path(folder)
    entries = folder.iterdir() if folder.is_dir() else ()
    names = [entry.name for entry in entries]
    numbers = [int(n) for n in names if n.isascii() and n.isdigit()]
    return max(numbers, default=0) + 1


def _refuse_existing(path):
    """Raises if there is anything at `path`."""
    if path.exists() or path.is_symlink():
        raise ExistingFileError(
            f"`path` must not exist yet. Received: path='{path}'. Remove it, "
            f"or export to a new version, {next_version(path.parent)}."
        )


def _text_spec(tokenizer, text_dim):
    """Returns the `tf.TensorSpec` of the text input."""
    if (tokenizer is None) == (text_dim is None):
        raise InputError(
            "`text_dim` must be given when there is no vocabulary, and only "
            f"then. Received: text_dim={text_dim}, vocabulary="
            f"{'None' if tokenizer is None else 'a vocabulary'}. Pass the one "
            "that the network was trained with."
        )
    if tokenizer is None:
        return tf.TensorSpec([None, text_dim], tf.float32, "text_features")
    if isinstance(tokenizer, TreeReader):
        return tokenizer.spec
    return tf.TensorSpec([None], tf.string, "captions")


def _describe(signatures, tokenizer, metadata):
    """Makes the content of `assets.extra/tbnets.json`."""

    def shapes(specs):
        return {
            name: {"dtype": spec.dtype.name, "shape": list(spec.shape)}
            for name, spec in specs.items()
        }

    described = {}
    for name, function in signatures.items():
        specs = function.structured_input_signature[0]
        described[name] = {
            "inputs": shapes({spec.name: spec for spec in specs}),
            "outputs": shapes(function.structured_outputs),
        }
    return {
        "tbnets_version": tbnets.__version__,
        "tensorflow_version": tf.__version__,
        "keras_version": importlib.metadata.version("keras"),
        "signatures": described,
        "vocabulary_size": tokenizer and tokenizer.vocabulary.size,
        "max_tokens": tokenizer and tokenizer.max_tokens,
        "metadata": metadata or {},
    }
