"""Searches photos with a loaded SavedModel or LiteRT model."""

import os
import pathlib
import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tbnets.checks import (
    Path,
    Photos,
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.pictures import KINDS
from tbnets.errors import InputError, check_kind
from tbnets.serving import photo_index
from tbnets.serving import search as searching
from tbnets.serving.photo_index import identity_of

if TYPE_CHECKING:
    from tbnets.serving.inputs import Texts
    from tbnets.serving.search_index import SearchIndex


class Answer(NamedTuple):
    """A result of a search.

    Attributes:
        image: path of the photo, or its id in a `SearchIndex`, or otherwise its
            row.
        similarity: similarity of the query and the image.
        confidence: probability that the query sentence was written for this
            photo; None if the query is an image or the model is not calibrated.
    """

    image: str | int
    similarity: float
    confidence: float | None


def answer(image, similarity, confidence):
    """Returns an `Answer`, in which a confidence of NaN becomes None."""
    known = None if np.isnan(confidence) else float(confidence)
    return Answer(image, float(similarity), known)


class PhotoSearch:
    """The methods that `served.Served` and `lite.Model` share."""

    signatures: Any = ()

    def has(self, *names: str) -> bool:
        """Returns whether the model has all endpoints in `names`."""
        return set(names) <= set(self.signatures)

    def compare(self: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Compares all embeddings of one side with all embeddings of the other.

        Args:
            first: float array `[n, embedding_dim]` for the first side in
                `similarity`.
            second: float array `[m, embedding_dim]` for the second side.

        Returns:
            float32 NumPy array `[n, m]`, as in `similarity`.

        Raises:
            ValueError: the arrays are not embeddings of this model.
        """
        expected = "embeddings", (None, self.embedding_dim)
        advice = "Pass embeddings from this model."
        first = as_numbers("first", first, *expected, advice)
        second = as_numbers("second", second, *expected, advice)
        products = None if self.has("compare") else first @ second.T
        # A non-finite input makes the sum non-finite, and a sum is faster to
        # check.
        if products is None or not np.isfinite(products.sum(dtype=np.float64)):
            check_finite("first", first)
            check_finite("second", second)
        if products is None:
            return self._compare_learned(first, second)
        return products

    def embed_images(self: Any, images: Photos) -> np.ndarray:
        """Embeds images. Returns unit vectors, float32 `[n, embedding_dim]`.

        Args:
            images: list of `n` photos, each a path, the bytes of a file, a
                `PIL.Image.Image` or a uint8 array `[height, width, 3]`; or, if
                the model takes features, a float array `[n, feature_dim]`.

        Raises:
            ValueError: an item is not a photo.
        """
        embeddings, reasons = self.try_images(images)
        for row, reason in enumerate(reasons):
            if reason:
                raise InputError(
                    "images",
                    f"be complete photos: {KINDS}",
                    f"images[{row}], which {reason}",
                    "Leave this image out.",
                )
        return embeddings

    def search(
        self: Any,
        queries: "Texts" = (),
        images: "Path | Photos | SearchIndex | None" = None,
        top: int = 5,
        *,
        like: Photos = (),
        cache: Path | Literal[False] | None = None,
    ) -> list[list[Answer]]:
        """Finds images that match sentences or are similar to query images.

        Warns if no word of a sentence is in the vocabulary.

        Args:
            queries: sentences, as in `embed_text`.
            images: images as in `embed_images`; a folder of photos; embeddings
                `[n, embedding_dim]` of photos; a `SearchIndex`; or None for the
                index inside the model.
            top: number of results for each query.
            like: query images, as in `embed_images`. Their results come last.
            cache: folder that caches the embeddings of a photo folder, so that
                the next search embeds only new and changed photos. None for
                FOLDER.tbnets next to the photo folder, False for no cache.

        Returns:
            list that contains, for each query, a list of `Answer`s, best first.

        Raises:
            ValueError: the model localizes phrases; or `like` is given and the
                model has a learned similarity.

        Example:
            model.search(["a dog in the snow"], "photos", top=3)
            model.search(images="photos", like=["dog.jpg"])
        """
        top = checked_number("top", top, 1, whole=True)
        is_held = images is None and self.has("search")
        # A model exported with only `search` has no `embed_image`.
        endpoint = "search" if is_held else "embed_image"
        if not self.has(endpoint, "embed_text"):
            other = ", or call `find`" if self.has("embed_phrases") else ""
            raise InputError(
                "search",
                "be called on a network for whole images",
                f"{self.path}, which has {sorted(self.signatures)}",
                f'Load tbnets.zoo.load("flickr8k_photos"){other}.',
            )
        if images is None and (len(like) or not is_held):
            raise InputError(
                "images",
                "be a folder, photos or their embeddings",
                "None",
                "Pass a folder, such as images='photos'.",
            )
        for name, values in (("queries", queries), ("like", like)):
            if not (isinstance(values, np.ndarray) and values.ndim):
                refuse_single(name, values)
        if cache:
            advice = "Name a folder, or omit it to use FOLDER.tbnets."
            check_kind("cache", cache, (str, os.PathLike), advice)
        if not is_held:
            names, embeddings = _gallery(self, images, cache)
        unknown = _warn_of_unknown(self, queries)
        if is_held:
            results = self.search_held(queries, top)
            for row in unknown:
                found = results[row]
                results[row] = [x._replace(confidence=None) for x in found]
            return results
        ranked = searching.rank(self, queries, like, embeddings, top)
        return [
            [answer(names[row], *numbers) for row, *numbers in zip(*results)]
            for results in zip(*ranked)
        ]


def _warn_of_unknown(model, queries):
    sentences = searching.sentences_of(queries)
    notes = searching.notes_on(model, sentences)
    unknown = [r for r, (_, n) in enumerate(notes) if n == searching.NO_WORD]
    for row in unknown:
        text = f'the vocabulary contains no word of "{sentences[row]}"'
        warnings.warn(f"{text}: its results are meaningless", stacklevel=3)
    return unknown


def _gallery(model, images, cache):
    # The module of `SearchIndex` imports TensorFlow.
    if hasattr(images, "check_embedded_by"):
        images.check_embedded_by(identity_of(model))
        return images.ids, images
    takes_photos = model.takes_photos
    if isinstance(images, str | os.PathLike):
        folder = pathlib.Path(images)
        if not takes_photos:
            raise InputError(
                "images",
                "be features of images",
                f"the folder {folder}, for a model that takes no photos",
                "Pass an array.",
            )
        names, embeddings = photo_index.embed_folder(model, folder, cache)
        return [str(folder / name) for name in names], embeddings
    if takes_photos and getattr(images, "ndim", 0) == 2:
        images = np.asarray(images)
        if images.shape[1] != model.embedding_dim:
            raise InputError(
                "images",
                "be photos, or embeddings from `embed_images`, [n, "
                f"{model.embedding_dim}]",
                f"an array of shape {images.shape}",
                "Put a single photo into a list.",
            )
        check_finite("images", images)
        return range(len(images)), images
    if not isinstance(images, np.ndarray):
        refuse_single("images", images)
    sizes = searching.BATCH_SIZE, searching.PHOTO_BATCH_SIZE
    embed, paths = model.embed_images, str | os.PathLike
    names = [
        os.fspath(image) if isinstance(image, paths) else row
        for row, image in enumerate(images)
    ]
    return names, searching.embed(embed, images, "image", sizes[takes_photos])
