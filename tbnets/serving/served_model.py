"""A SavedModel that `serving` exported, called with lists and arrays."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.images import fault_of, list_photos
from tbnets.serving import saved_files, search
from tbnets.serving.served import IMAGE_BYTES, Served, as_input
from tbnets.serving.served_localizer import ServedLocalizer

PAIRS_AT_ONCE = 8192
"""Pairs that a learned comparison works on at once."""


class ServedModel(Served):
    """Calls a loaded SavedModel of image-sentence matching.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function.
        metadata: content of `assets.extra/tbnets.json`, {} where absent.
    """

    required = ("embed_text", "embed_image", "score")

    def __init__(self, path, signatures, metadata):
        super().__init__(path, signatures, metadata, "embed_text")
        self.image_spec = self._specs("embed_image")[0]

    @property
    def takes_image_bytes(self):
        """Whether images are encoded photos (else feature vectors)."""
        return self.image_spec.dtype == tf.string

    @property
    def learned_similarity(self):
        """Whether the model learned to compare (else cosines compare)."""
        return "compare" in self._signatures

    def embed_text(self, texts):
        """Embeds texts.

        Args:
            texts: list of `m` strings, or float array `[m, text_dim]`; or,
                where the model `takes_trees`, of `text.trees.Tree`s.

        Returns:
            float32 NumPy array `[m, embedding_dim]`, unit vectors.
        """
        inputs = {self.text_spec.name: self.text_input(texts)}
        return self._call("embed_text", inputs)["embeddings"].numpy()

    def embed_images(self, images):
        """Embeds images.

        Args:
            images: list of `n` photos, each a path (`str` or `pathlib.Path`)
                or the content of a JPEG or PNG file (`bytes`); or, where the
                model takes features, float array `[n, feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.

        Raises:
            ValueError: one of them is no photo; names it and tells why.
        """
        inputs = {
            self.image_spec.name: as_input("images", self.image_spec, images)
        }
        answers = self._call("embed_image", inputs)
        if "status" in answers:  # Not so of features, and of earlier exports.
            self._refuse_broken(inputs, answers["status"])
        return answers["embeddings"].numpy()

    def embed_features(self, features):
        """Embeds image features, where the model also takes photos.

        Args:
            features: float array `[n, feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.

        Raises:
            ValueError: the model has no such endpoint.
        """
        if "embed_features" not in self._signatures:
            raise InputError(
                "`embed_features` must be an endpoint of the model. Received: "
                f"{self.path}, which has {sorted(self._signatures)}. Call "
                "`embed_images`."
            )
        (spec,) = self._specs("embed_features")
        return self._embed("embed_features", "features", spec, features)

    def similarity(self, images, texts):
        """Compares each image with each text.

        Args:
            images: as in `embed_images`.
            texts: as in `embed_text`.

        Returns:
            float32 NumPy array `[n, m]` of cosine similarities, or of the
            logits of a model that learned to compare.
        """
        inputs = {
            self.image_spec.name: as_input("images", self.image_spec, images),
            self.text_spec.name: self.text_input(texts),
        }
        return self._call("score", inputs)["similarities"].numpy()

    def compare(self, image_embeddings, text_embeddings):
        """Compares each image with each text, by their embeddings.

        Where the model learned to compare, a few thousand pairs are in work
        at once.

        Args:
            image_embeddings: float array `[n, embedding_dim]`.
            text_embeddings: float array `[m, embedding_dim]`.

        Returns:
            float32 NumPy array `[n, m]`, as `similarity` does.
        """
        if not self.learned_similarity:
            return image_embeddings @ text_embeddings.T
        images, texts = (
            tf.constant(np.asarray(one, np.float32))
            for one in (image_embeddings, text_embeddings)
        )
        found = np.empty((len(images), len(texts)), np.float32)
        for column in range(0, len(texts), PAIRS_AT_ONCE):
            columns = slice(column, column + PAIRS_AT_ONCE)
            step = max(1, PAIRS_AT_ONCE // len(texts[columns]))
            for row in range(0, len(images), step):
                rows = slice(row, row + step)
                found[rows, columns] = self._signatures["compare"](
                    image_embeddings=images[rows],
                    text_embeddings=texts[columns],
                )["similarities"]
        return found

    def search(self, queries, images, top=5):
        """Finds the images that answer a sentence best.

        Args:
            queries: as in `embed_text`.
            images: as in `embed_images`; or a folder, of which all photos are
                searched, while files that are none are told on standard
                error and left out; or, where the model takes photos, float
                array `[n, embedding_dim]`, what `embed_images` returned.
            top: number of answers for each query.

        Returns:
            list with a list for each query, best first, of `(image,
            similarity)`: the path, or the row where images have none.

        Example:
            model.search(["a dog in the snow"], "photos", top=3)
        """
        if isinstance(images, str | os.PathLike):
            images, embeddings = self._embed_folder(pathlib.Path(images))
        elif self.takes_image_bytes and isinstance(images, np.ndarray):
            embeddings = images
        else:
            embeddings = _embed_all(self.embed_images, images, "image")
        texts = _embed_all(self.embed_text, queries, "query")
        similarities = self.compare(embeddings, texts).T
        order, similarities = search.best(similarities, top)
        return [
            [
                (_name(images, row), float(value))
                for row, value in zip(rows, values)
            ]
            for rows, values in zip(order, similarities)
        ]

    def _embed_folder(self, folder):
        """Returns the photos of a folder, and their embeddings."""
        if not self.takes_image_bytes:
            raise InputError(
                "`images` must be features of images. Received: a folder, "
                f"{folder}, and the model takes no photos. Give an array."
            )
        ids, embeddings = search.embed_photos(self, folder, list_photos(folder))
        return [folder / name for name in ids], embeddings

    def _embed(self, signature, argument, spec, values):
        inputs = {spec.name: as_input(argument, spec, values)}
        return self._call(signature, inputs)["embeddings"].numpy()

    def _call(self, signature, inputs):
        """Calls a signature; says which image is to blame if one is."""
        try:
            return self._signatures[signature](**inputs)
        except tf.errors.InvalidArgumentError as error:
            if IMAGE_BYTES in inputs:
                answers = {}
                if signature != "embed_image":
                    photos = {IMAGE_BYTES: inputs[IMAGE_BYTES]}
                    answers = self._call("embed_image", photos)
                self._refuse_broken(inputs, answers.get("status"), error)
            raise

    def _refuse_broken(self, inputs, status=None, error=None):
        """Names the first image that is no photo.

        Args:
            inputs: with the photos.
            status: what the graph says of each; None if it says nothing.
            error: what it raised; None if nothing.
        """
        contents = inputs[IMAGE_BYTES].numpy()
        told = [None] * len(contents) if status is None else status.numpy()
        for row, (content, reason) in enumerate(zip(contents, told)):
            if reason == b"":
                continue
            # The same function on the host tells more of what is wrong.
            reason = fault_of(content) or (reason and reason.decode())
            if reason:
                raise InputError(
                    "`images` must be whole JPEG or PNG files. Received: "
                    f"images[{row}], which {reason}. Leave it out."
                ) from error


def load_saved_model(path, trust=False):
    """Loads a SavedModel that `export_saved_model` wrote.

    A SavedModel is a program: what its graph says is done when it is called.
    One with ops that an exported model has not, which could write files, is
    refused before anything of it is executed.

    Args:
        path: its folder, the one that holds `saved_model.pb`; or one above
            it, of which the newest version is taken.
        trust: whether its graph may have any ops.

    Returns:
        A `ServedModel`; of phrase localization, a
        `served_localizer.ServedLocalizer`; of a task of another kind, a
        `served.Served`.

    Raises:
        FileNotFoundError: If there is no SavedModel.
        ValueError: If it is damaged, lacks a signature or has ops of others.

    Example:
        served = tbnets.load_saved_model("served/1")
        served.similarity(image_features, ["a red dog"])  # [n, 1] cosines
    """
    path = saved_files.newest_version(path)
    metadata = saved_files.read_metadata(path)
    saved_files.check_files(path, metadata)
    if not trust:
        saved_files.check_graph(path)
    try:
        signatures = tf.saved_model.load(str(path)).signatures
    except Exception as error:  # Whatever bytes of others lead TensorFlow to.
        raise saved_files.damaged(path, error) from error
    kind = _kind_of(signatures, metadata)
    missing = set(kind.required) - set(signatures)
    if missing:
        raise InputError(
            "`path` must be a SavedModel exported by tbnets. Received: "
            f"path='{path}' without {sorted(missing)}; it has "
            f"{sorted(signatures)}. Export the run again."
        )
    return kind(path, signatures, metadata)


def _kind_of(signatures, metadata):
    """Returns the class of a model, as its signatures tell it."""
    if "embed_phrases" in signatures:
        return ServedLocalizer
    others = set(signatures) - {"serving_default"}
    if "signatures" in metadata and others.isdisjoint(ServedModel.required):
        return Served
    return ServedModel


def _embed_all(embed, rows, what):
    """Embeds in batches; none at all too."""
    return search.embed(embed, rows, what) if len(rows) else embed(rows)


def _name(images, row):
    """Returns the path of an image, or its row where it has none."""
    image = images[row]
    is_path = isinstance(image, str | os.PathLike)
    return os.fspath(image) if is_path else int(row)
