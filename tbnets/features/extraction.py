"""Photos -> a feature store: decoded in parallel with the forward pass.

The photos are cut into shards in the order of the list, and batches do not
cross shards, so what a shard holds does not depend on where an extraction
was stopped: killed and continued, it writes the same bytes.
"""

import contextlib

import numpy as np
import tensorflow as tf

from tbnets.features.full_network import ternary
from tbnets.features.full_network import ternary_bounds
from tbnets.images import BrokenImageError
from tbnets.images import load_image
from tbnets.images import read_image_bytes
from tbnets.statistics import StreamingStatistics
from tbnets.store.manifest import MANIFEST
from tbnets.store.manifest import read_manifest
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter

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
    convert=None,
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
        convert: float32 `[n, dim]` -> what is stored; None for itself.
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
            convert(rows) if convert else rows,
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


def measure(store):
    """Measures what ternary features are standardised with.

    Args:
        store: `Features` of the training images, and of no others.

    Returns:
        dict of float64 arrays `mean` and `deviation`.
    """
    statistics = StreamingStatistics()
    for _, rows in store.chunks():
        statistics.update(rows)
    return {"mean": statistics.mean, "deviation": statistics.deviation}


def ternary_converter(statistics, thresholds):
    """Returns a function float32 `[n, dim]` -> int8 `[n, dim]`.

    Args:
        statistics: dict of `mean` and `deviation`.
        thresholds: (low, high) in standard deviations.
    """
    bounds = ternary_bounds(
        statistics["mean"], statistics["deviation"], *thresholds
    )
    return lambda rows: ternary(rows, *bounds)


def convert_store(store, writer, convert, shard_images=None):
    """Copies features from one store to another, converted.

    Args:
        store: `Features` to read; those the writer has are left out.
        writer: a `FeatureWriter`.
        convert: float32 `[n, dim]` -> what is stored.
        shard_images: images a shard; None for `SHARD_IMAGES`.
    """
    shard_images = shard_images or SHARD_IMAGES
    todo = [key for key in store.ids if key not in writer.done]
    for start in range(0, len(todo), shard_images):
        ids = todo[start : start + shard_images]
        writer.add_shard(ids, convert(store.take(store.rows(ids))))


def extract_ternary(
    photos, train_ids, of, features, writer, thresholds, progress=None, **sizes
):
    """Extracts ternary features; see `full_network`.

    The training images come first: their features are kept as float32 in a
    store beside the folder (`raw_folder`) until the statistics, which need
    all of them, are known. The other photos follow without a detour.

    Args:
        photos: list of (id, path).
        train_ids: set of the ids whose statistics count; not looked at
            where the store has statistics already.
        of: what these are, as the name of a split.
        features: a `PhotoFeatures`.
        writer: a `FeatureWriter` of int8.
        thresholds: (low, high) in standard deviations.
        progress: as in `extract`.
        **sizes: `batch_size` and `shard_images`, as in `extract`.

    Returns:
        list of (path, reason): the photos that failed now.
    """
    train = [photo for photo in photos if photo[0] in train_ids]
    if writer.statistics is None:
        raw = FeatureWriter(
            raw_folder(writer), features.description(), features.dim
        )
        extract(train, features, raw, progress=progress, **sizes)
        raw.finish()
        store = open_store(raw_folder(writer))
        writer.add_statistics(measure(store), of, len(store))
    convert = ternary_converter(writer.statistics, thresholds)
    if _left_in_raw(train, writer):
        store = open_store(raw_folder(writer))
        convert_store(store, writer, convert, sizes.get("shard_images"))
    return extract(
        photos, features, writer, convert=convert, progress=progress, **sizes
    )


def raw_folder(writer):
    """Returns where features lie until the statistics are known."""
    return writer.path.with_name(f"{writer.path.name}.raw")


def _left_in_raw(train, writer):
    """Whether features of training photos wait for their conversion."""
    if not (raw_folder(writer) / MANIFEST).is_file():
        return False
    failed = read_manifest(raw_folder(writer)).failed
    return any(key not in writer.done and key not in failed for key, _ in train)


def remove_raw(writer):
    """Removes the store of `raw_folder`, its own files and no others."""
    folder = raw_folder(writer)
    if not (folder / MANIFEST).is_file():
        return
    for shard in read_manifest(folder).shards:
        for name in shard.sha256:
            (folder / name).unlink(missing_ok=True)
    (folder / MANIFEST).unlink()
    with contextlib.suppress(OSError):  # Somebody put something else there.
        folder.rmdir()
