"""One split with everything a network needs of it."""

import contextlib
import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from tbnets.data.captions import CaptionedImages
from tbnets.images import load_image


@dataclasses.dataclass(frozen=True)
class Examples:
    """One split with everything a network needs of it.

    Args:
        records: the images' ids, the captions and who belongs to whom.
        images: object with `shape`, `dtype` and `batch(image_rows)` that
            returns the images of some rows of `records`.
        texts: the same for `batch(caption_rows)`.
        text_ids: int64 `[num_captions]`, equal for captions with equal
            text, or None when equal texts are no positives.
    """

    records: CaptionedImages
    images: object
    texts: object
    text_ids: np.ndarray | None = None


class FeatureRows:
    """Rows of (memory-mapped) features.

    Args:
        features: a `store.arrays.Features`.
        rows: int `[n]`; the row of the features for each row of the records.
    """

    dtype = tf.float32

    def __init__(self, features, rows):
        self.features = features
        self.rows = np.asarray(rows)
        self.shape = features.take(()).shape[1:]

    def batch(self, rows):
        """Returns float32 `[len(rows), feature_dim]`."""
        return self.features.take(self.rows[rows])

    def chunks(self, size=4096):
        """Yields all rows once, `size` at a time, in order."""
        for start in range(0, len(self.rows), size):
            yield self.features.take(self.rows[start : start + size])


class FileNames:
    """Paths of image files; they are decoded inside the `tf.data` pipeline.

    Args:
        paths: list of paths, one for each row of the records.
    """

    dtype = tf.string
    shape = ()

    def __init__(self, paths):
        self.paths = [pathlib.Path(path) for path in paths]

    def batch(self, rows):
        """Returns the paths `[len(rows)]`."""
        return np.array([str(self.paths[row]) for row in rows], dtype=object)


@contextlib.contextmanager
def naming_broken_images(images, image_size):
    """Turns a decoding failure inside into an error that names the file.

    `tf.data` says that an image did not decode, not which; this looks for it.

    Args:
        images: the `images` of some `Examples`.
        image_size: side of the decoded images in pixels.

    Raises:
        ValueError: naming the first of the files that does not decode.
    """
    try:
        yield
    except tf.errors.OpError:
        for path in getattr(images, "paths", ()):
            load_image(path, image_size)
        raise


class TokenRows:
    """Word ids of captions, cut to the longest caption of each batch.

    Args:
        token_ids: int32 `[num_captions, words]`, right-padded with 0.
    """

    dtype = tf.int32
    shape = (None,)

    def __init__(self, token_ids):
        self.token_ids = np.asarray(token_ids, np.int32)
        self.lengths = (self.token_ids != 0).sum(axis=1)

    def batch(self, rows):
        """Returns int32 `[len(rows), longest]`."""
        longest = int(self.lengths[rows].max(initial=1))
        return self.token_ids[rows, :longest]


def equal_text_ids(captions):
    """Returns int64 `[n]`, equal exactly where the texts are equal.

    Case and surrounding or repeated spaces do not count.
    """
    known = {}
    return np.array(
        [
            known.setdefault(" ".join(caption.casefold().split()), len(known))
            for caption in captions
        ],
        dtype=np.int64,
    )
