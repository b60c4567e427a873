"""Embeds photos on Apache Beam, on one machine or a cluster.

Each worker process loads the network once. A photo that cannot be read gives a
row with a `status` instead of an error. `tbnets.data.store.vectors` describes
the columns of a row.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable

import apache_beam as beam
import numpy as np
from apache_beam.utils.shared import Shared

from tbnets import startup
from tbnets.checks import Path
from tbnets.data import pictures
from tbnets.serving import embedding_cache


@dataclasses.dataclass
class Encoder:
    """A loaded network.

    Args:
        made_by: JSON value that identifies the network.
        dim: size of a vector.
        try_images: function that maps a list of JPEG or PNG contents to
            (vectors float32 `[n, dim]`, a list of statuses).
    """

    made_by: dict
    dim: int
    try_images: Callable


def load_model(name: str, trust: bool = False) -> Encoder:
    """Loads a model that embeds photos."""
    from tbnets.serving import checksums, zoo  # Slow to import.

    model = zoo.open_model(name, trust)
    made_by = checksums.identity_of(model)
    return Encoder(made_by, model.embedding_dim, model.try_images)


def load_network(name: str, weights: str) -> Encoder:
    """Builds a network that extracts features, and loads its weights."""
    import tensorflow as tf  # Slow to import, like the other modules.

    from tbnets.features.photo_features import PhotoFeatures, build_named_cnn
    from tbnets.serving.inputs import PhotoReader

    features = PhotoFeatures(build_named_cnn(name, weights))
    contents = tf.TensorSpec([None], tf.string)
    read = tf.function(PhotoReader(features).photos, [contents])

    def try_images(contents):
        vectors, statuses = read(tf.constant(contents))
        return vectors.numpy(), [x.decode() for x in statuses.numpy()]

    return Encoder(features.description(), features.dim, try_images)


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
        yield from self.rows(batch, {})

    def rows(self, photos, known, read=pictures.read_file):
        """Yields the rows of photos.

        Args:
            photos: list of (id, photo).
            known: dict from digests of contents to vectors, or to faults. They
                are not computed again, and the new ones are added.
            read: function that returns the content of a photo.
        """
        ids, contents = zip(*photos)
        digests, new, faults = embedding_cache.try_photos(
            self.encoder, contents, known, range(len(ids)), read
        )
        known |= new
        nothing = np.zeros(self.encoder.dim, np.float32)
        for place, key in enumerate(ids):
            digest = digests.get(place, "")
            result = known[digest] if digest else faults[place]
            status = result if isinstance(result, str) else ""
            vector = nothing if status else result
            row = {"id": key, "embedding": vector, "status": status}
            yield {**row, "sha256": digest}


def _encode(load, threads):
    size = embedding_cache.PHOTO_BATCH_SIZE
    return beam.BatchElements(size, size) | beam.ParDo(Encode(load, threads))


def EmbedPhotos(model: Path, threads=1, trust=False):  # noqa: N802
    """Returns a transform that embeds photos: maps (id, bytes) pairs to rows.

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
    load = functools.partial(load_model, os.fspath(model), trust)
    return _encode(load, threads)


def ExtractFeatures(network, weights="imagenet", threads=1):  # noqa: N802
    """Returns a transform that extracts features of photos, like `EmbedPhotos`.

    Args:
        network: a name that `--image_encoder` of `tbnets train` accepts, such
            as "EfficientNetLite0" or "hub:PRESET".
        weights: `imagenet`, the path of a weights file, or `random`.
        threads: as in `EmbedPhotos`.
    """
    load = functools.partial(load_network, network, os.fspath(weights))
    return _encode(load, threads)
