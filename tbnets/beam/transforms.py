"""Embeds photos on Apache Beam, on one machine or a cluster.

Each worker process loads the network once. A photo that cannot be read gives a
row with a `status` instead of an error. `tbnets.data.store.vectors` describes
the columns of a row.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils.shared import Shared

from tbnets import startup
from tbnets.checks import Path
from tbnets.data import pictures
from tbnets.serving.embedding_cache import HELD_BYTES, PHOTO_BATCH_SIZE


def sha256(content):
    """Returns the digest of a photo's content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclasses.dataclass
class Encoder:
    """A loaded network.

    Args:
        made_by: JSON value that identifies the network.
        dim: size of a vector.
        encode: function that maps a list of JPEG or PNG contents to (vectors
            float32 `[n, dim]`, a list of statuses).
    """

    made_by: dict
    dim: int
    encode: Callable

    def rows(self, photos: list[tuple[str, bytes]]) -> list[dict]:
        """Returns the rows of photos, (id, content) pairs."""
        rows, contents, held = [], [], 0
        for place, (_, content) in enumerate(photos, 1):
            contents.append(pictures.as_decodable(content))
            held += len(contents[-1])
            if held > HELD_BYTES or place == len(photos):
                rows += zip(*self.encode(contents))
                contents, held = [], 0
        return [
            self.row(key, content, vector, status)
            for (key, content), (vector, status) in zip(photos, rows)
        ]

    def row(self, key: str, content: bytes, vector: Any, status: str) -> dict:
        """Returns the row of a photo."""
        if not (status or np.isfinite(vector).all()):
            status = "has an embedding that is not finite"
        vector = np.zeros(self.dim, np.float32) if status else vector
        row = {"id": key, "embedding": vector, "status": status}
        return {**row, "sha256": sha256(content)}


def load_model(name: str, trust: bool = False) -> Encoder:
    """Loads a model that embeds photos."""
    from tbnets.serving import checksums, zoo  # Slow to import.

    model = zoo.open_model(name, trust)
    made_by = checksums.identity_of(model)
    return Encoder(made_by, model.embedding_dim, model.try_images)


def load_network(name: str, weights: str) -> Encoder:
    """Builds a network that extracts features, and loads its weights."""
    import tensorflow as tf  # Slow to import, like the other modules.

    from tbnets.features import photo_features
    from tbnets.serving.inputs import PhotoReader

    network = photo_features.build_named_cnn(name, weights)
    features = photo_features.PhotoFeatures(network)
    contents = tf.TensorSpec([None], tf.string)
    read = tf.function(PhotoReader(features).photos, [contents])

    def encode(contents):
        vectors, statuses = read(tf.constant(contents))
        return vectors.numpy(), [x.decode() for x in statuses.numpy()]

    return Encoder(features.description(), features.dim, encode)


class Encode(beam.DoFn):
    """Maps batches of (id, content) to rows.

    Args:
        load: function that returns an `Encoder`. Each worker process calls it
            once.
        threads: as in `EmbedPhotos`.
    """

    def __init__(self, load, threads):
        self.load, self.threads = load, threads
        self.loaded = Shared()

    def setup(self):
        """Loads the network."""
        self.encoder = self.loaded.acquire(self._load)

    def _load(self):
        startup.choose_kernels()
        startup.keep_freed_memory()
        startup.prepare_tensorflow()
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # TensorFlow is already used.
            tf.config.threading.set_intra_op_parallelism_threads(self.threads)
            tf.config.threading.set_inter_op_parallelism_threads(self.threads)
        return self.load()

    def process(self, batch):
        """Yields the rows of a batch."""
        yield from self.encoder.rows(batch)


def _encode(photos, load, threads):
    batches = photos | beam.BatchElements(PHOTO_BATCH_SIZE, PHOTO_BATCH_SIZE)
    return batches | beam.ParDo(Encode(load, threads))


@beam.ptransform_fn
def EmbedPhotos(photos, model: Path, threads=1, trust=False):  # noqa: N802
    """Embeds photos: maps (id, bytes) pairs to rows.

    A row is a dict: `id`; `embedding`, float32 `[embedding_dim]`, a unit
    vector; `status`, "", or the fault of the photo, such as "is empty"; and
    `sha256`, the digest of the bytes. The embedding of a broken photo is 0.

    Args:
        photos: `PCollection` of (id, bytes), the pipeline's input.
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
    load = functools.partial(load_model, os.fspath(model), trust)
    return _encode(photos, load, threads)


@beam.ptransform_fn
def ExtractFeatures(photos, network, weights="imagenet", threads=1):  # noqa: N802
    """Extracts features of photos, like `EmbedPhotos`.

    Args:
        photos: as in `EmbedPhotos`.
        network: a name that `--image_encoder` of `tbnets train` accepts, such
            as "EfficientNetLite0" or "hub:PRESET".
        weights: `imagenet`, the path of a weights file, or `random`.
        threads: as in `EmbedPhotos`.
    """
    load = functools.partial(load_network, network, os.fspath(weights))
    return _encode(photos, load, threads)
