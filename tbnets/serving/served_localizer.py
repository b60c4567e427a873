"""A SavedModel of phrase localization, called with lists and arrays."""

import contextlib

import numpy as np
import tensorflow as tf

from tbnets.boxes import check_boxes, non_maximum_suppression
from tbnets.errors import InputError
from tbnets.features.proposals import proposer_of
from tbnets.images import BrokenImageError, decode_photo, fault_of, read_content
from tbnets.serving.served import Served, as_input

SUPPRESSION = 0.5
"""A region that overlaps a better one by more is no answer of its own."""


class ServedLocalizer(Served):
    """Calls a loaded SavedModel of phrase localization.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function, see
            `region_endpoints.region_endpoints`.
        metadata: content of `assets.extra/tbnets.json`, {} where absent.
    """

    required = ("embed_phrases", "embed_regions", "compare", "score")

    def __init__(self, path, signatures, metadata):
        super().__init__(path, signatures, metadata, "embed_phrases")
        (self.region_spec,) = self._specs("embed_regions")

    @property
    def takes_photos(self):
        """Whether it begins with a photo (else with features of regions)."""
        return "localize" in self._signatures

    def embed_phrases(self, phrases):
        """Embeds phrases.

        Args:
            phrases: list of `m` strings, or float array `[m, text_dim]`; or,
                where the model `takes_trees`, of `text.trees.Tree`s.

        Returns:
            float32 NumPy array `[m, embedding_dim]`.
        """
        inputs = self._phrases(phrases)
        return self._signatures["embed_phrases"](**inputs)["embeddings"].numpy()

    def embed_regions(self, features):
        """Embeds features of regions `[n, region_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`.
        """
        inputs = self._features(features)
        return self._signatures["embed_regions"](**inputs)["embeddings"].numpy()

    def similarity(self, phrases, features):
        """Compares each phrase with each region.

        Args:
            phrases: as in `embed_phrases`.
            features: as in `embed_regions`.

        Returns:
            float32 NumPy array `[m, n]` of cosine similarities, or of the
            logits of a model that learned to compare.
        """
        inputs = {**self._phrases(phrases), **self._features(features)}
        return self._signatures["score"](**inputs)["similarities"].numpy()

    def compare(self, phrase_embeddings, region_embeddings):
        """Compares each phrase with each region, by their embeddings.

        Returns:
            float32 NumPy array `[m, n]`, as `similarity` does.
        """
        phrases, regions = (
            tf.constant(np.asarray(one, np.float32))
            for one in (phrase_embeddings, region_embeddings)
        )
        return self._signatures["compare"](
            phrase_embeddings=phrases, region_embeddings=regions
        )["similarities"].numpy()

    def localize(self, phrases, photo, boxes):
        """Compares each phrase with each box of a photo.

        Args:
            phrases: as in `embed_phrases`.
            photo: a path (`str` or `pathlib.Path`) or the content of a JPEG
                or PNG file (`bytes`).
            boxes: `[n, 4]` in pixels of the upright photo; n may be 0.

        Returns:
            float32 NumPy array `[m, n]`, as `similarity` does.

        Raises:
            BrokenImageError: the photo is none.
            ValueError: the boxes are none, or the model takes no photos.
        """
        if not self.takes_photos:
            raise InputError(
                "The model must begin with a photo. Received: "
                f"{self.path}, which takes features of regions. Train it on "
                "regions of --region_features=roi_average, and export it by "
                "tools/export.py --cnn_weights=imagenet."
            )
        inputs = {
            **self._phrases(phrases),
            "boxes": tf.constant(check_boxes(boxes), tf.float32),
        }
        with _opened(photo) as content:
            found = self._signatures["localize"](image_bytes=content, **inputs)
        reason = found["status"].numpy().decode() if "status" in found else ""
        if reason:
            content = content.numpy()
            raise _broken(photo, content, fault_of(content) or reason)
        return found["similarities"].numpy()

    def propose(self, photo):
        """Proposes boxes as they were proposed for the training.

        Args:
            photo: as in `localize`.

        Returns:
            float32 NumPy array `[n, 4]` in pixels of the upright photo, best
            first; n may be 0.

        Raises:
            BrokenImageError: the photo is none.
            ValueError: see `features.proposals.proposer_of`.
        """
        made_by = self.metadata.get("metadata", {})
        made_by = made_by.get("image_features_made_by", {})
        propose = proposer_of(made_by.get("proposals", {}))
        with _opened(photo) as content:
            pixels = decode_photo(content).numpy()
        return propose(pixels)[0]

    def find(self, phrases, photo, top=1, boxes=None):
        """Finds the regions of a photo that phrases name.

        Of regions that overlap by more than half, the best one answers for
        all of them.

        Args:
            phrases: as in `embed_phrases`.
            photo: as in `localize`.
            top: most regions for each phrase.
            boxes: float `[n, 4]` to choose from, in pixels of the upright
                photo; None for those that `propose` finds, which needs OpenCV
                (the extra `regions`).

        Returns:
            list with a list for each phrase, best first, of `(box,
            similarity)`: float32 `[4]` and a float. It is empty where nothing
            is proposed.

        Raises:
            BrokenImageError: the photo is none.
            ValueError: see `localize` and `propose`.

        Example:
            model.find(["a red ball"], "photo.jpg")[0]  # [(box, similarity)]
        """
        if boxes is None:
            boxes = self.propose(photo)
        boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
        found = []
        for row in self.localize(phrases, photo, boxes):
            kept = non_maximum_suppression(boxes, row, SUPPRESSION, top)
            found.append([(boxes[one], float(row[one])) for one in kept])
        return found

    def _phrases(self, phrases):
        return {self.text_spec.name: self.text_input(phrases, "phrases")}

    def _features(self, features):
        spec = self.region_spec
        return {spec.name: as_input("features", spec, features)}


@contextlib.contextmanager
def _opened(photo):
    """Gives the content of a photo; what it is not is told by its name."""
    is_content = isinstance(photo, bytes)
    content = photo if is_content else read_content(photo)
    try:
        yield tf.constant(content)
    except tf.errors.InvalidArgumentError as error:
        reason = fault_of(content)
        if reason:
            raise _broken(photo, content, reason) from error
        raise


def _broken(photo, content, reason):
    """Returns the error for what is no photo; it has a name or a length."""
    is_content = isinstance(photo, bytes)
    name = f"{len(content)} bytes" if is_content else photo
    return BrokenImageError(name, reason)
