"""Photos -> a feature store: decoded in parallel with the forward pass.

The photos are cut into shards in the order of the list, and batches do not
cross shards, so what a shard holds does not depend on where an extraction
was stopped: killed and continued, it writes the same bytes.
"""

import contextlib

import numpy as np
import tensorflow as tf

from tbnets.images import BrokenImageError
from tbnets.images import load_image
from tbnets.images import read_image_bytes

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


def decoded_batches(shards, features, batch_size=BATCH_SIZE):
    """Returns a `tf.data.Dataset` of decoded photos, shard after shard.

    Args:
        shards: list of lists of (id, path).
        features: a `PhotoFeatures`.
        batch_size: photos a batch; the last one of a shard may be smaller.

    Returns:
        (dataset, reasons): elements (shard int64 `[]`, positions int64
        `[b]` in the shard, photos float32 `[b, side, side, 3]`), without
        the photos that do not decode. `reasons` is a dict that gets (shard,
        position) -> why a file was not read.
    """
    reasons = {}

    def readable():
        """Yields each shard with the files whose headers are in order."""
        for shard, photos in enumerate(shards):
            positions = []
            for position, (_, path) in enumerate(photos):
                try:
                    read_image_bytes(path)
                    positions.append(position)
                except FileNotFoundError:
                    reasons[shard, position] = "is not there"
                except BrokenImageError as error:
                    reasons[shard, position] = error.reason
            paths = [str(photos[position][1]) for position in positions]
            yield shard, np.array(positions, np.int64), np.array(paths, "S")

    def decode(position, path):
        return position, features.decode(tf.io.read_file(path))

    def one_shard(shard, positions, paths):
        dataset = tf.data.Dataset.from_tensor_slices((positions, paths))
        dataset = dataset.map(decode, tf.data.AUTOTUNE, deterministic=True)
        dataset = dataset.ignore_errors().batch(batch_size)
        return dataset.map(lambda rows, photos: (shard, rows, photos))

    # Python is entered once a shard, not once a photo.
    dataset = tf.data.Dataset.from_generator(
        readable,
        output_signature=(
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.string),
        ),
    )
    return dataset.prefetch(1).flat_map(one_shard).prefetch(2), reasons


def extract(
    photos,
    features,
    writer,
    *,
    batch_size=BATCH_SIZE,
    shard_images=SHARD_IMAGES,
    progress=None,
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
    todo = remaining(photos, writer)
    shards = [
        todo[start : start + shard_images]
        for start in range(0, len(todo), shard_images)
    ]
    batches, reasons = decoded_batches(shards, features, batch_size)
    failures = []
    batches = iter(batches)
    waiting = next(batches, None)
    for number, shard in enumerate(shards):
        positions, parts, told = [], [], 0
        while waiting is not None and int(waiting[0]) == number:
            _, rows, decoded = waiting
            parts.append(features.compiled_forward(decoded).numpy())
            positions += rows.numpy().tolist()
            _tell(progress, positions[-1] + 1 - told)
            told = positions[-1] + 1
            waiting = next(batches, None)
        failed = _failed(shard, set(positions), reasons, number, features)
        rows = np.concatenate([np.zeros((0, features.dim), np.float32), *parts])
        writer.add_shard(
            [shard[position][0] for position in positions],
            rows,
            failed={key: reason for key, _, reason in failed},
        )
        failures += [(path, reason) for _, path, reason in failed]
        _tell(progress, len(shard) - told)
    return failures


def _tell(progress, count):
    if progress is not None:
        progress(count)


def _failed(shard, done, reasons, number, features):
    """Returns (id, path, reason) of the photos that gave no features."""
    failed = []
    for position, (key, path) in enumerate(shard):
        if position in done:
            continue
        reason = reasons.get((number, position))
        if reason is None:  # It was read, but not decoded: see why.
            reason = "does not decode"
            with contextlib.suppress(FileNotFoundError):
                try:
                    load_image(path, features.photo_size)
                except BrokenImageError as error:
                    reason = error.reason
        failed.append((key, path, reason))
    return failed
