"""Embeds photos on Apache Beam, on one machine or a cluster.

Each worker process loads the network once. A photo that cannot be read gives a
row with a `status` instead of an error. `tbnets.data.store.vectors` describes
the rows and the files.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable

import numpy as np

from tbnets import startup
from tbnets.checks import Path
from tbnets.data import pictures
from tbnets.errors import InputError, import_extra
from tbnets.serving.embedding_cache import HELD_BYTES, PHOTO_BATCH_SIZE

with startup.quiet_tensorflow():  # Beam prints warnings, too.
    beam = import_extra("beam", "apache_beam")
shared = import_extra("beam", "apache_beam.utils.shared")


class Encoder:
    """A loaded network.

    Args:
        made_by: JSON value that identifies the network.
        dim: size of a vector.
        encode: function that maps a list of JPEG or PNG contents to (vectors
            float32 `[n, dim]`, a list of statuses).
    """

    def __init__(self, made_by: dict, dim: int, encode: Callable) -> None:
        self.made_by, self.dim, self._encode = made_by, dim, encode

    def rows(self, photos: list[tuple[str, bytes]]) -> list[dict]:
        """Returns the rows of photos, (id, content) pairs."""
        pairs, held, rows = [], 0, []
        for key, content in photos:
            decodable = pictures.as_decodable(content)
            pairs.append((key, content, decodable))
            held += len(decodable)
            if held > HELD_BYTES:
                rows += self._rows_at_once(pairs)
                pairs, held = [], 0
        return rows + self._rows_at_once(pairs)

    def _rows_at_once(self, photos):
        if not photos:  # Convolutions on some CPUs reject an empty batch.
            return []
        found, statuses = self._encode([content for *_, content in photos])
        rows = []
        for (key, content, _), vector, status in zip(photos, found, statuses):
            if not status and not np.isfinite(vector).all():
                status = "has an embedding that is not finite"
            rows.append(row_of(key, sha256(content), status, vector))
        return rows


def sha256(content):
    """Returns the digest of a photo's content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def row_of(key, digest, status, vector):
    """Returns the row of a photo, a dict of the columns of a file."""
    if status:
        vector = np.zeros_like(vector)
    row = {"id": key, "embedding": vector, "status": status}
    return {**row, "sha256": digest}


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that embeds photos, by the name or path that workers load."""

    name: str
    trust: bool = False

    def load(self) -> Encoder:
        """Loads the model."""
        with startup.quiet_tensorflow():
            from tbnets.serving import checksums, zoo
        model = zoo.open_model(self.name, self.trust)
        if not (model.has("embed_image") and model.takes_photos):
            raise InputError(
                "model",
                "be a network that embeds whole photos",
                f"model={self.name}, which has {sorted(model.signatures)}",
                "Choose another model.",
            )
        made_by = checksums.identity_of(model)
        return Encoder(made_by, model.embedding_dim, model.try_images)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network that extracts features, by its name and weights."""

    name: str
    weights: str = "imagenet"

    def load(self) -> Encoder:
        """Builds the network and loads its weights."""
        with startup.quiet_tensorflow():
            import tensorflow as tf

            from tbnets.data.images import fault_of
            from tbnets.features import photo_features
            from tbnets.serving.photo_reader import PhotoReader
        network = photo_features.build_named_cnn(self.name, self.weights)
        features = photo_features.PhotoFeatures(network)
        contents = tf.TensorSpec([None], tf.string)
        read = tf.function(PhotoReader(features).photos, [contents])

        def encode(contents):
            found, statuses = read(tf.constant(contents))
            pairs = zip(contents, statuses.numpy())
            reasons = [s and (fault_of(c) or s.decode()) for c, s in pairs]
            return found.numpy(), reasons

        return Encoder(features.description(), features.dim, encode)


class Encode(beam.DoFn):
    """Maps batches of (id, content) to rows.

    Args:
        network: a `Model` or a `Network`, which each worker process loads once.
        threads: as in `EmbedPhotos`.
    """

    def __init__(self, network, threads):
        self.network, self.threads = network, threads
        self.loaded = shared.Shared()

    def setup(self):
        """Loads the network."""
        self.encoder = self.loaded.acquire(self._load)

    def _load(self):
        startup.choose_kernels()
        startup.keep_freed_memory()
        with startup.quiet_tensorflow():
            import tensorflow as tf
        startup.allow_tensor_float_32(False)
        with contextlib.suppress(RuntimeError):  # TensorFlow is already used.
            tf.config.threading.set_intra_op_parallelism_threads(self.threads)
            tf.config.threading.set_inter_op_parallelism_threads(self.threads)
        return self.network.load()

    def process(self, batch):
        """Yields the rows of a batch."""
        yield from self.encoder.rows(batch)


class _Rows(beam.PTransform):
    def __init__(self, network, threads):
        super().__init__()
        self.network, self.threads = network, threads

    def expand(self, photos):
        size = PHOTO_BATCH_SIZE
        batches = photos | beam.BatchElements(size, size)
        return batches | beam.ParDo(Encode(self.network, self.threads))


class EmbedPhotos(_Rows):
    """Embeds photos: maps (id, bytes) pairs to rows.

    A row is a dict: `id`; `embedding`, float32 `[embedding_dim]`, a unit
    vector; `status`, "", or the fault of the photo, such as "is empty"; and
    `sha256`, the digest of the bytes. The embedding of a broken photo is 0.

    Args:
        model: name of a zoo model, or the path of a run or a SavedModel that
            every worker can read.
        threads: number of TensorFlow threads of a worker process: its share of
            the machine's cores.
        trust: whether to allow all ops in the model's graph.

    Example:
        with beam.Pipeline() as pipeline:
            photos = pipeline | beam.Create([("dog", content)])
            rows = photos | tbnets.beam.EmbedPhotos("flickr8k_photos")
    """

    def __init__(
        self, model: Path, threads: int = 1, trust: bool = False
    ) -> None:
        super().__init__(Model(os.fspath(model), trust), threads)


class ExtractFeatures(_Rows):
    """Extracts features of photos, like `EmbedPhotos`.

    Args:
        network: a name that `--image_encoder` of `tbnets train` accepts, such
            as "EfficientNetLite0" or "hub:PRESET".
        weights: `imagenet`, the path of a weights file, or `random`.
        threads: as in `EmbedPhotos`.
    """

    def __init__(
        self, network: str, weights: Path = "imagenet", threads: int = 1
    ) -> None:
        super().__init__(Network(network, os.fspath(weights)), threads)
