"""Extracts features of photos and regions into feature stores.

Batches follow the order of the photos. An extraction that was interrupted
resumes when it is run again. The finished store is byte-identical to the store
of an uninterrupted run.
"""

import collections
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tbnets.data import images
from tbnets.data.batches import untuned
from tbnets.data.pictures import UNREAD
from tbnets.errors import InputError
from tbnets.features.cache import remaining, write_results
from tbnets.features.proposals import import_opencv
from tbnets.startup import no_accelerator, usable_cores

BATCH_SIZE = 32


def decoded_batches(photos, decode, batch_size=BATCH_SIZE):
    """Returns a `tf.data.Dataset` of decoded photos, in order.

    `photos` is a list of (id, path). Each element of the dataset is (positions
    in the list, decoded photos), with the shapes `[batch]`, int64, and `[batch,
    ...]`. Files that `decode` rejects are skipped.
    """
    paths = tf.constant([os.fsencode(path) for _, path in photos], tf.string)

    def read(position, path):
        return position, decode(images.read_file(path))

    dataset = tf.data.Dataset.from_tensor_slices(paths).enumerate()
    dataset = dataset.map(read, usable_cores(), deterministic=True)
    return untuned(dataset.ignore_errors().batch(batch_size).prefetch(2))


def _decoded(photos, decode, batch_size):
    batches = decoded_batches(photos, decode, batch_size) if photos else ()
    for positions, decoded in batches:
        yield positions.numpy().tolist(), decoded


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
    photos, features, writer, *, batch_size=BATCH_SIZE, **writing
):
    """Extracts the features of photos into a store.

    `photos` is a list of (id, path). Photos in the store are skipped. `writing`
    are the options of `write_results`, whose result is returned.
    """
    photos = remaining(photos, writer)
    decoded = _decoded(photos, features.decode, batch_size)
    batches = (
        (positions, [{"features": vector[None]} for vector in vectors])
        for positions, vectors in _computed(features, decoded)
    )
    return write_results(photos, writer, batches, _faults, **writing)


def _faults(photos):
    reasons = images.faults([path for _, path in photos])
    return [reason or UNREAD for reason in reasons]


def extract_regions(photos, proposals, extractor, writer, **writing):
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
    photos = remaining(photos, writer)
    rows = [i for i, (key, _) in enumerate(photos) if key not in unproposed]

    def batches():
        proposed = [photos[i] for i in rows]
        for [place], [pixels] in _decoded(proposed, images.decode_photo, 1):
            key, pixels = proposed[place][0], pixels.numpy()
            regions = _regions(extractor, pixels, proposals, key, writer.dtype)
            yield [rows[place]], [regions]

    def reasons(failed):
        return [
            f"has no proposals{reason_of.get(key, '')}"
            if key in unproposed
            else reason
            for (key, _), reason in zip(failed, _faults(failed))
        ]

    return write_results(photos, writer, batches(), reasons, **writing)


def _regions(extractor, pixels, proposals, key, dtype):
    size, [row] = pixels.shape[1::-1], proposals.rows([key])
    boxes, scores = proposals.boxes(row)
    if proposals.sizes is not None and tuple(proposals.sizes[row]) != size:
        raise InputError(
            "proposals",
            f"be made for a photo of {size[0]} x {size[1]} pixels",
            f"{proposals.path}, where {key!r} has {proposals.sizes[row]}",
        )
    with np.errstate(over="ignore"):  # The writer rejects infinity.
        features = extractor(pixels, boxes).astype(dtype)
    return {"features": features, **_of_boxes(boxes, scores, size)}


def _of_boxes(boxes, scores, size):
    arrays = {"boxes": boxes, "counts": [len(boxes)], "sizes": [size]}
    return arrays if scores is None else {**arrays, "scores": scores}


def propose_photos(photos, proposer, writer, *, workers=1, **writing):
    """Writes proposals for photos into a store of boxes and scores.

    `proposer` is a `Proposer`, and `workers` is the number of threads. The
    other arguments and the result are the same as for `extract_photos`.
    """
    photos, faults = remaining(photos, writer), {}

    def work(photo):
        try:
            pixels = images.read_photo(photo[1])
            return _of_boxes(*proposer(pixels), pixels.shape[1::-1])
        except images.BrokenImageError as error:
            faults[photo] = error.reason
            return None

    def reasons(failed):
        return [faults[photo] for photo in failed]

    cv2 = import_opencv()
    num_threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # OpenCV then uses only the calling thread.
    pool = ThreadPoolExecutor(workers)
    try:
        results = enumerate(pool.map(work, photos))
        batches = (([i], [result]) for i, result in results)
        return write_results(photos, writer, batches, reasons, **writing)
    finally:
        pool.shutdown(cancel_futures=True)
        cv2.setNumThreads(num_threads)
