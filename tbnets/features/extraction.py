"""Photos -> a feature store: decoded in parallel with the forward pass.

The photos are cut into shards in the order of the list, and batches do not
cross shards, so what a shard holds does not depend on where an extraction
was stopped: killed and continued, it writes the same bytes.
"""

import os

import numpy as np
import tensorflow as tf

from tbnets.cores import usable_cores
from tbnets.images import faults, read_file
from tbnets.pipelines import untuned
from tbnets.progress import progress_bar

SHARD_IMAGES = 256
BATCH_SIZE = 32


def remaining(photos, writer):
    """Returns the photos that an extraction still has to do.

    Those that failed before are left out, until there are no others: then
    they are tried again, as they may have been mended.

    Args:
        photos: list of (id, path).
        writer: a `FeatureWriter`.
    """
    new = [photo for photo in photos if photo[0] not in writer.done]
    fresh = [photo for photo in new if photo[0] not in writer.failed]
    return fresh or new


def remaining_shards(photos, writer, size):
    """Cuts what `remaining` returns into lists of `size` photos."""
    todo = remaining(photos, writer)
    return [todo[start : start + size] for start in range(0, len(todo), size)]


def decoded_batches(shards, features, batch_size=BATCH_SIZE):
    """Returns a `tf.data.Dataset` of decoded photos, shard after shard.

    Args:
        shards: list of lists of (id, path).
        features: a `PhotoFeatures`.
        batch_size: photos a batch; the last one of a shard may be smaller.

    Returns:
        Its elements are (shard int64 `[]`, positions int64 `[b]` in the
        shard, photos float32 `[b, side, side, 3]`), without the files that
        are no photos.
    """

    def numbered():
        for shard, photos in enumerate(shards):
            paths = [os.fsencode(path) for _, path in photos]
            numbers = np.arange(len(paths), dtype=np.int64)
            yield shard, numbers, np.array(paths, object)

    def decode(position, path):
        return position, features.decode(read_file(path))

    def one_shard(shard, positions, paths):
        dataset = tf.data.Dataset.from_tensor_slices((positions, paths))
        dataset = dataset.map(decode, usable_cores(), deterministic=True)
        dataset = dataset.ignore_errors().batch(batch_size)
        return dataset.map(lambda rows, photos: (shard, rows, photos))

    # Python is entered once a shard, not once a photo.
    dataset = tf.data.Dataset.from_generator(
        numbered,
        output_signature=(
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.string),
        ),
    )
    return untuned(dataset.prefetch(1).flat_map(one_shard).prefetch(2))


def extract(
    photos,
    features,
    writer,
    *,
    batch_size=BATCH_SIZE,
    shard_images=SHARD_IMAGES,
    progress=lambda count: None,
):
    """Extracts the features of photos into a store.

    A photo that does not decode is noted in the store with the reason, and
    the rest goes on.

    Args:
        photos: list of (id, path); those the store has are left out.
        features: a `PhotoFeatures`.
        writer: a `FeatureWriter`.
        batch_size: photos a forward pass.
        shard_images: photos a shard.
        progress: called with the number of photos done since the last call.

    Returns:
        list of (path, reason): the photos that failed now.
    """
    shards = remaining_shards(photos, writer, shard_images)
    batches = iter(decoded_batches(shards, features, batch_size))
    failures = []
    waiting = next(batches, None)
    for number, shard in enumerate(shards):
        positions, parts = [], []
        while waiting is not None and int(waiting[0]) == number:
            _, rows, decoded = waiting
            parts.append(features.compiled_forward(decoded).numpy())
            positions += rows.numpy().tolist()
            progress(len(rows))
            waiting = next(batches, None)
        failed = failed_photos(shard, set(positions))
        rows = np.concatenate([np.zeros((0, features.dim), np.float32), *parts])
        writer.add_shard(
            [shard[position][0] for position in positions],
            rows,
            failed={key: reason for key, _, reason in failed},
        )
        failures += [(path, reason) for _, path, reason in failed]
        progress(len(failed))
    return failures


def extract_all(photos, features, writer):
    """Extracts with a progress bar and completes the store.

    Args:
        photos: as in `extract`.
        features: as in `extract`.
        writer: as in `extract`.

    Returns:
        list of (path, reason): the photos that failed now.
    """
    left = len(remaining(photos, writer))
    with progress_bar(left, "extracting features", "photo", leave=True) as bar:
        failures = extract(photos, features, writer, progress=bar.update)
    writer.finish()
    return failures


def failed_photos(shard, done):
    """Tells which photos gave no features, and why.

    Args:
        shard: list of (id, path).
        done: set of the positions in it of those that gave some.

    Returns:
        list of (id, path, reason).
    """
    left = [photo for i, photo in enumerate(shard) if i not in done]
    reasons = faults([path for _, path in left])
    return [
        # It may have come or been mended since.
        (key, path, reason or "was no photo when it was read")
        for (key, path), reason in zip(left, reasons)
    ]
