"""Exports a trained network as a SavedModel that takes raw input.

The SavedModel has the signatures `embed_text` (caption strings, or text
features), `embed_image` (feature vectors, or JPEG/PNG bytes) and `score`
(both). It loads wherever TensorFlow and TF Text are, without this package:
tokeniser, word table and image decoding are part of its graph.
"""

import importlib.metadata
import os
import pathlib
import shutil
import tempfile

import tensorflow as tf

import tbnets
from tbnets.files import write_json
from tbnets.serving.ops import check_ops
from tbnets.serving.served_model import METADATA_FILE
from tbnets.serving.served_model import VOCABULARY_FILE
from tbnets.text.vocabulary import Tokenizer


class ServingModule(tf.Module):
    """Holds what a SavedModel needs: the endpoints and their variables.

    The endpoints are `tf.function`s that keep the signatures' names in a
    loaded SavedModel, so `loaded.embed_text(captions)["embeddings"]` works.
    Of the Keras model only the variables that the endpoints read are kept.

    Args:
        model: has `embed_images(images, training)` and `embed_text(texts,
            training)`, both to float32 unit vectors `[n, embedding_dim]`.
        tokenizer: a `Tokenizer`, or None where texts are feature vectors.
        text: `tf.TensorSpec` of the texts.
        image: `tf.TensorSpec` of the images.
        read_photos: string `[n]` of encoded photos -> what the model takes;
            None where images are given as that.
        features: `tf.TensorSpec` of what the model takes, for an endpoint
            `embed_features` beside photos; None for no such endpoint.
    """

    def __init__(
        self, model, tokenizer, text, image, read_photos=None, features=None
    ):
        super().__init__(name="tbnets")
        self.tokenizer = tokenizer
        self.embed_features = None
        read = read_photos or (lambda arrays: arrays)

        def text_embeddings(texts):
            if tokenizer is not None:
                texts = tokenizer(texts)
            return model.embed_text(texts, training=False)

        def image_embeddings(images):
            return model.embed_images(read(images), training=False)

        @tf.function(input_signature=[text])
        def embed_text(texts):
            return {"embeddings": text_embeddings(texts)}

        @tf.function(input_signature=[image])
        def embed_image(images):
            return {"embeddings": image_embeddings(images)}

        @tf.function(input_signature=[image, text])
        def score(images, texts):
            similarities = tf.matmul(
                image_embeddings(images),
                text_embeddings(texts),
                transpose_b=True,
            )
            return {"similarities": similarities}

        @tf.function(input_signature=[features or image])
        def embed_features(rows):
            return {"embeddings": model.embed_images(rows, training=False)}

        if features is not None:
            self.embed_features = embed_features
        self.embed_text = embed_text
        self.embed_image = embed_image
        self.score = score
        used = {}
        for function in self.signatures().values():
            used.update({id(v): v for v in function.variables})
        self.used_variables = list(used.values())

    def signatures(self):
        """Returns name -> concrete function of every endpoint."""
        endpoints = {
            "embed_text": self.embed_text,
            "embed_image": self.embed_image,
            "score": self.score,
        }
        if self.embed_features is not None:
            endpoints["embed_features"] = self.embed_features
        return {
            name: endpoint.get_concrete_function()
            for name, endpoint in endpoints.items()
        }


def export_saved_model(
    model,
    vocabulary,
    path,
    *,
    image_shape,
    read_photos=None,
    text_dim=None,
    metadata=None,
):
    """Writes a trained network as a SavedModel.

    Signatures (`n` images, `m` captions, either may be 0):

    - `embed_text`: `captions` string `[m]` (or `text_features` float32 `[m,
      text_dim]`) -> `embeddings` float32 `[m, embedding_dim]`; also the
      default;
    - `embed_image`: `image_features` float32 `[n, *image_shape]` or
      `image_bytes` string `[n]` -> `embeddings` `[n, embedding_dim]`;
    - `score`: both inputs -> `similarities` (cosines) `[n, m]`;
    - `embed_features`: where photos are turned into feature vectors first,
      `image_features` float32 `[n, feature_dim]` -> `embeddings`.

    The folder is written under another name beside `path` and renamed at the
    end: `path` is complete or absent.

    Args:
        model: a built network with `embed_images` and `embed_text`, as
            `models.embedding_network.EmbeddingNetwork`.
        vocabulary: the run's `Vocabulary`; a `Tokenizer` if captions are to
            be cut at its `max_tokens`; None if the network takes text
            features.
        path: folder to write, which must not exist, by custom `<name>/<n>`
            with `n` from `next_version`: TensorFlow Serving's layout.
        image_shape: shape of one image as the model takes it: `(feature_dim,)`
            or `(size, size, 3)`.
        read_photos: None to serve such arrays; to serve JPEG and PNG files, a
            function of TensorFlow operations, string `[n]` -> `[n,
            *image_shape]`, as `images.decode_images` or a
            `features.photo_features.PhotoFeatures`.
        text_dim: dimension of text features; None where there is a
            vocabulary.
        metadata: JSON-ready dict to keep in `assets.extra/tbnets.json`.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        FileExistsError: If `path` exists.
        OSError: If it cannot be written; nothing half-written stays.
        ValueError: If an argument does not fit or the graph has an op that
            TensorFlow Serving does not know.
    """
    path = pathlib.Path(path)
    _refuse_existing(path)
    tokenizer, text = _text_input(vocabulary, text_dim)
    arrays = tf.TensorSpec([None, *image_shape], tf.float32, "image_features")
    if read_photos is None:
        module = ServingModule(model, tokenizer, text, arrays)
    else:
        photos = tf.TensorSpec([None], tf.string, "image_bytes")
        features = arrays if len(image_shape) == 1 else None
        module = ServingModule(
            model, tokenizer, text, photos, read_photos, features
        )
    signatures = module.signatures()
    for name, function in signatures.items():
        check_ops(name, function.graph.as_graph_def())
    description = _describe(signatures, tokenizer, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        tf.saved_model.save(
            module,
            temporary,
            signatures={
                "serving_default": signatures["embed_text"],
                **signatures,
            },
        )
        extra = pathlib.Path(temporary, METADATA_FILE)
        extra.parent.mkdir()
        write_json(extra, description)
        if tokenizer is not None:
            tokenizer.vocabulary.save(pathlib.Path(temporary, VOCABULARY_FILE))
        os.chmod(temporary, 0o755)
        _refuse_existing(path)
        os.rename(temporary, path)
    except (OSError, tf.errors.OpError) as error:
        if isinstance(error, FileExistsError):
            raise
        raise OSError(
            "`path` must be a place that can be written. Received: "
            f"path='{path}', which failed: {error}. Nothing was left there; "
            "free some space or choose another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
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
        raise FileExistsError(
            f"`path` must not exist yet. Received: path='{path}'. Remove it, "
            f"or export to a new version, {next_version(path.parent)}."
        )


def _text_input(vocabulary, text_dim):
    """Returns the tokenizer, if any, and the spec of the text input."""
    if (vocabulary is None) == (text_dim is None):
        raise ValueError(
            "`text_dim` must be given when there is no vocabulary, and only "
            f"then. Received: text_dim={text_dim}, vocabulary="
            f"{'None' if vocabulary is None else 'a vocabulary'}. Pass the one "
            "that the network was trained with."
        )
    if vocabulary is None:
        shape = [None, text_dim]
        return None, tf.TensorSpec(shape, tf.float32, "text_features")
    if not isinstance(vocabulary, Tokenizer):
        vocabulary = Tokenizer(vocabulary)
    return vocabulary, tf.TensorSpec([None], tf.string, "captions")


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
