"""Extracts features of photos and regions into feature stores.

Batches follow the order of the photos. An extraction that was
interrupted resumes when it is run again. The finished store is byte-identical
to the store of an uninterrupted run.
"""

import collections
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tbnets.data import images
from tbnets.data.batches import untuned
from tbnets.data.pictures import UNREAD
from tbnets.errors import InputError
from tbnets.features.proposals import import_opencv
from tbnets.startup import no_accelerator, usable_cores

PHOTOS_PER_WRITE = 256
"""Number of photos whose features a killed process may lose."""
BATCH_SIZE = 32


def remaining(photos, writer):
    """Returns the (id, path) pairs of photos that are not in a writer's store.

    Photos that failed before are tried again only if no new photos remain.
    """
    new = [photo for photo in photos if photo[0] not in writer.done]
    fresh = [photo for photo in new if photo[0] not in writer.failed]
    return fresh or new


def remaining_groups(photos, writer, size):
    """Divides the remaining photos into lists of at most `size` photos."""
    todo = remaining(photos, writer)
    return [todo[start : start + size] for start in range(0, len(todo), size)]


def decoded_batches(groups, decode, batch_size=BATCH_SIZE):
    """Returns a `tf.data.Dataset` of decoded photos, group after group.

    `groups` contains lists of (id, path). Each element of the dataset is (index
    of the group, positions in the group, photos), with the shapes `[]`,
    `[batch]` and `[batch, ...]`. The first two are int64. Files that `decode`
    rejects are skipped.
    """
    paths = [os.fsencode(path) for photos in groups for _, path in photos]
    lengths = np.array([len(photos) for photos in groups], np.int64)
    paths = tf.constant(paths, tf.string)

    def read(position, path):
        return position, decode(images.read_file(path))

    def one_group(group, group_paths):
        dataset = tf.data.Dataset.from_tensor_slices(group_paths).enumerate()
        dataset = dataset.map(read, usable_cores(), deterministic=True)
        dataset = dataset.ignore_errors().batch(batch_size)
        return dataset.map(lambda rows, photos: (group, rows, photos))

    paths = tf.RaggedTensor.from_row_lengths(paths, lengths)
    dataset = tf.data.Dataset.from_tensor_slices(paths).enumerate()
    return untuned(dataset.flat_map(one_group).prefetch(2))


def decoded_by_group(groups, decode, batch_size):
    """Yields each group and an iterator over its (positions, photos) batches.

    Exhaust the iterator before you request the next group.
    """
    batches = decoded_batches(groups, decode, batch_size) if groups else ()
    decoded = itertools.groupby(batches, lambda batch: int(batch[0]))
    number, of_group = next(decoded, (None, ()))
    for i, group in enumerate(groups):
        if i != number:
            yield group, ()
            continue
        yield group, ((rows.numpy().tolist(), x) for _, rows, x in of_group)
        number, of_group = next(decoded, (None, ()))


def _computed(features, batches):
    # On a CPU, two batches are computed at once, because some layers leave
    # cores idle. With ten crops, one batch uses all cores.

    def compute(positions, photos):
        return positions, features.compiled_forward(photos).numpy()

    at_once = 2 if no_accelerator() and features.crops == "one" else 1
    waiting = collections.deque()
    with ThreadPoolExecutor(at_once) as threads:
        for batch in batches:
            waiting.append(threads.submit(compute, *batch))
            if len(waiting) == at_once:
                yield waiting.popleft().result()
        for last in waiting:
            yield last.result()


def extract_photos(
    photos,
    features,
    writer,
    *,
    batch_size=BATCH_SIZE,
    write_every=PHOTOS_PER_WRITE,
    progress=lambda count: None,
):
    """Extracts the features of photos into a store.

    `photos` is a list of (id, path). Photos in the store are skipped.
    `progress` is called with the number of newly processed photos. Returns a
    list of (path, reason) for the photos that could not be decoded in this
    call. The store also records the reasons.
    """
    groups = remaining_groups(photos, writer, write_every)
    failures = []
    for group, batches in decoded_by_group(groups, features.decode, batch_size):
        rows = {}
        for positions, vectors in _computed(features, batches):
            rows.update(zip(positions, vectors))
            progress(len(positions))
        failed = failed_photos(group, rows)
        ids = [group[position][0] for position in rows]
        failures += _add(writer, ids, failed, list(rows.values()))
        progress(len(failed))
    return failures


def failed_photos(group, done):
    """Returns (id, path, reason) for each photo that could not be decoded.

    `done` contains the positions of the group's decoded photos.
    """
    failed = [photo for i, photo in enumerate(group) if i not in done]
    reasons = images.faults([path for _, path in failed])
    pairs = zip(failed, reasons)
    return [(*photo, reason or UNREAD) for photo, reason in pairs]


def extract_regions(
    photos,
    proposals,
    extractor,
    writer,
    *,
    write_every=PHOTOS_PER_WRITE,
    progress=lambda count: None,
):
    """Extracts the features of proposed regions into a store.

    `proposals` is a `FeatureStore` of kind "regions" that contains the boxes,
    and `extractor` is a region extractor, such as `AveragedFeatures`. The other
    arguments and the result are the same as for `extract_photos`. Photos
    without proposals are recorded as failed.
    """
    keys = [key for key, _ in photos]
    unproposed = set(proposals.missing(keys))
    if len(unproposed) == len(set(keys)):
        proposals.rows(keys)  # Raises an error that names the photos.
    reason_of = {key: f", as it {x}" for key, x in proposals.failed.items()}
    failures = []
    groups = remaining_groups(photos, writer, write_every)
    proposed = [[p for p in x if p[0] not in unproposed] for x in groups]
    decoded = decoded_by_group(proposed, images.decode_photo, 1)
    for all_photos, (group, batches) in zip(groups, decoded):
        regions_of = {}
        for [position], [pixels] in batches:
            key, pixels = group[position][0], pixels.numpy()
            regions = _regions(extractor, pixels, proposals, key, writer.dtype)
            regions_of[position] = (key, *regions)
            progress(1)
        failed = failed_photos(group, regions_of) + [
            (key, path, f"has no proposals{reason_of.get(key, '')}")
            for key, path in all_photos
            if key in unproposed
        ]
        failures += add_regions(writer, list(regions_of.values()), failed)
        progress(len(failed))
    return failures


def _regions(extractor, pixels, proposals, key, dtype):
    size, [row] = pixels.shape[1::-1], proposals.rows([key])
    boxes, scores = proposals.boxes(row)
    if proposals.sizes is not None and tuple(proposals.sizes[row]) != size:
        expected = " x ".join(map(str, proposals.sizes[row]))
        raise InputError(
            "proposals",
            "be made for these photos",
            f"{proposals.path}, where {key!r} has {expected} pixels, for a "
            f"photo of {size[0]} x {size[1]}",
            "Propose regions for these photos, or pass the folder of the "
            "photos that have the proposals.",
        )
    with np.errstate(over="ignore"):  # The writer rejects infinity.
        features = extractor(pixels, boxes).astype(dtype)
    return features, boxes, scores, size


def add_regions(writer, photos, failed):
    """Writes regions and returns (path, reason) for each failed photo.

    Args:
        writer: a `FeatureWriter` of kind "regions".
        photos: list of (id, features or None, boxes, scores or None, size).
        failed: list of (id, path, reason).
    """
    if not photos:
        return _add(writer, (), failed)
    ids, *parts, sizes = zip(*photos)
    counts = [len(boxes) for boxes in parts[1]]
    features, boxes, scores = (
        None if part[0] is None else np.concatenate(part) for part in parts
    )
    arrays = features, boxes, counts, scores, np.array(sizes)
    return _add(writer, ids, failed, *arrays)


def _add(writer, ids, failed, *arrays):
    reasons = {key: reason for key, _, reason in failed}
    writer.add(ids, *arrays, failed=reasons)
    return [(path, reason) for _, path, reason in failed]


def propose_photos(
    photos,
    proposer,
    writer,
    *,
    workers=1,
    write_every=PHOTOS_PER_WRITE,
    progress=lambda count: None,
):
    """Writes proposals for photos into a store of boxes and scores.

    `proposer` is a `Proposer`, and `workers` is the number of threads. The
    other arguments and the result are the same as for `extract_photos`.
    """
    failures = []

    def work(photo):
        key, path = photo
        try:
            pixels = images.read_photo(path)
            return key, None, *proposer(pixels), pixels.shape[1::-1]
        except images.BrokenImageError as error:
            return key, path, error.reason

    groups = remaining_groups(photos, writer, write_every)
    cv2 = import_opencv()
    num_threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # OpenCV then uses only the calling thread.
    try:
        with ThreadPoolExecutor(workers) as pool:
            for group in groups:
                proposed, failed = [], []
                for result in pool.map(work, group):
                    (failed if len(result) == 3 else proposed).append(result)
                    progress(1)
                failures += add_regions(writer, proposed, failed)
    finally:
        cv2.setNumThreads(num_threads)
    return failures
