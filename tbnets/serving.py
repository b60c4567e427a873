"""Exports a trained network as a SavedModel that takes raw input.

The SavedModel has the signatures `embed_text` (caption strings, or text
features), `embed_image` (feature vectors, or JPEG/PNG bytes) and `score`
(both). It loads wherever TensorFlow and TF Text are, without this package:
tokeniser, word table and image decoding are part of its graph.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf

import tbnets
from tbnets.files import write_json
from tbnets.images import decode_images
from tbnets.serving_ops import check_ops
from tbnets.text.vocabulary import Tokenizer
from tbnets.text.vocabulary import Vocabulary

METADATA_FILE = "assets.extra/tbnets.json"
VOCABULARY_FILE = "assets.extra/vocabulary.txt"
IMAGE_INPUTS = ("features", "bytes")


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
        image_size: side of the square that encoded photos are resized to.
    """

    def __init__(self, model, tokenizer, text, image, image_size):
        super().__init__(name="tbnets")
        self.tokenizer = tokenizer

        def text_embeddings(texts):
            if tokenizer is not None:
                texts = tokenizer(texts)
            return model.embed_text(texts, training=False)

        def image_embeddings(images):
            if image.dtype == tf.string:
                images = decode_images(images, image_size)
            return model.embed_images(images, training=False)

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

        self.embed_text = embed_text
        self.embed_image = embed_image
        self.score = score
        used = {}
        for function in self.signatures().values():
            used.update({id(v): v for v in function.variables})
        self.used_variables = list(used.values())

    def signatures(self):
        """Returns name -> concrete function of every endpoint."""
        return {
            "embed_text": self.embed_text.get_concrete_function(),
            "embed_image": self.embed_image.get_concrete_function(),
            "score": self.score.get_concrete_function(),
        }


def export_saved_model(
    model,
    vocabulary,
    path,
    *,
    image_input="features",
    image_shape,
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
    - `score`: both inputs -> `similarities` (cosines) `[n, m]`.

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
        image_input: "features" for float arrays, "bytes" for JPEG or PNG
            files that the graph decodes and resizes.
        image_shape: shape of one image as the model takes it: `(feature_dim,)`
            or `(size, size, 3)`.
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
    image = _image_input(image_input, tuple(image_shape))
    module = ServingModule(model, tokenizer, text, image, image_shape[0])
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


class ServedModel:
    """Calls a loaded SavedModel with Python lists and NumPy arrays.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function.
        metadata: content of `assets.extra/tbnets.json`, {} where absent.
    """

    def __init__(self, path, signatures, metadata):
        self.path = path
        self.metadata = metadata
        words = path / VOCABULARY_FILE
        self.vocabulary = Vocabulary.load(words) if words.is_file() else None
        self._signatures = signatures
        self.text_spec = self._specs("embed_text")[0]
        self.image_spec = self._specs("embed_image")[0]

    def _specs(self, name):
        return list(
            self._signatures[name].structured_input_signature[1].values()
        )

    @property
    def takes_captions(self):
        """Whether texts are strings (else they are feature vectors)."""
        return self.text_spec.dtype == tf.string

    @property
    def takes_image_bytes(self):
        """Whether images are encoded photos (else feature vectors)."""
        return self.image_spec.dtype == tf.string

    def embed_text(self, texts):
        """Embeds texts.

        Args:
            texts: list of `m` strings, or float array `[m, text_dim]`.

        Returns:
            float32 NumPy array `[m, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_text", "texts", self.text_spec, texts)

    def embed_images(self, images):
        """Embeds images.

        Args:
            images: list of `n` encoded photos, or float array `[n,
                feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_image", "images", self.image_spec, images)

    def score(self, images, texts):
        """Compares each image with each text.

        Args:
            images: as in `embed_images`.
            texts: as in `embed_text`.

        Returns:
            float32 NumPy array `[n, m]` of cosine similarities.
        """
        inputs = {
            self.image_spec.name: _input("images", self.image_spec, images),
            self.text_spec.name: _input("texts", self.text_spec, texts),
        }
        return self._signatures["score"](**inputs)["similarities"].numpy()

    def _embed(self, signature, argument, spec, values):
        inputs = {spec.name: _input(argument, spec, values)}
        return self._signatures[signature](**inputs)["embeddings"].numpy()


def load_saved_model(path):
    """Loads a SavedModel that `export_saved_model` wrote.

    Args:
        path: its folder, the one that holds `saved_model.pb`.

    Returns:
        A `ServedModel`.

    Raises:
        FileNotFoundError: If there is no SavedModel.
        ValueError: If it lacks a signature.
    """
    path = pathlib.Path(path)
    if not (path / "saved_model.pb").is_file():
        raise FileNotFoundError(
            "`path` must be a folder with saved_model.pb. Received: "
            f"path='{path}'. Give the numbered folder that training wrote, "
            "for example runs/quickstart/saved_model/1."
        )
    signatures = tf.saved_model.load(str(path)).signatures
    missing = {"embed_text", "embed_image", "score"} - set(signatures)
    if missing:
        raise ValueError(
            "`path` must be a SavedModel exported by tbnets. Received: "
            f"path='{path}' without {sorted(missing)}; it has "
            f"{sorted(signatures)}. Export the run again."
        )
    extra = path / METADATA_FILE
    metadata = json.loads(extra.read_text("utf-8")) if extra.is_file() else {}
    return ServedModel(path, signatures, metadata)


def _input(argument, spec, values):
    """Converts one input; says what is wrong with its shape or type."""
    if spec.dtype == tf.string:
        if isinstance(values, (str, bytes)):
            raise ValueError(
                f"`{argument}` must be a list of strings. Received: one "
                f"{type(values).__name__}. Put it into a list."
            )
        return tf.constant(list(values), tf.string, [len(values)])
    values = np.asarray(values, np.float32)
    if not spec.shape.is_compatible_with(values.shape):
        raise ValueError(
            f"`{argument}` must be of shape {tuple(spec.shape)}. Received: "
            f"shape={values.shape}. Use the features the network was trained "
            "on."
        )
    return tf.constant(values)


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


def _image_input(image_input, image_shape):
    """Returns the spec of the image input."""
    if image_input not in IMAGE_INPUTS:
        raise ValueError(
            f"`image_input` must be one of {IMAGE_INPUTS}. Received: "
            f"image_input={image_input!r}. Use one of them."
        )
    if image_input == "features":
        shape = [None, *image_shape]
        return tf.TensorSpec(shape, tf.float32, "image_features")
    if image_shape != (image_shape[0], image_shape[0], 3):
        raise ValueError(
            "`image_shape` must be (size, size, 3) for image_input='bytes'. "
            f"Received: image_shape={image_shape}. Give the size the network "
            "was trained with, or use image_input='features'."
        )
    return tf.TensorSpec([None], tf.string, "image_bytes")


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
