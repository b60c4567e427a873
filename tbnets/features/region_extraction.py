"""Photos -> stores of regions: boxes that are proposed, and their features.

As in `extraction`, photos are decoded in parallel with the network, cut into
shards in the order of the list, and each photo is computed by itself: killed
and continued, an extraction writes the same bytes.
"""

import concurrent.futures

import numpy as np

from tbnets.data import images
from tbnets.errors import InputError
from tbnets.features import extraction
from tbnets.features.proposals import import_opencv


def extract_regions(
    photos,
    proposals,
    extractor,
    writer,
    *,
    shard_images=extraction.SHARD_IMAGES,
    progress=lambda count: None,
):
    """Extracts the features of the proposed regions of photos into a store.

    A photo without proposals, or one that does not decode, is noted in the
    store with the reason, and the rest goes on.

    Args:
        photos: list of (id, path); those the writer has are left out.
        proposals: a `FeatureStore` of kind "regions" that has their boxes.
        extractor: what `regions.make_region_extractor` returned.
        writer: a `FeatureWriter` of kind "regions".
        shard_images: photos a shard.
        progress: called with the number of photos done since the last call.

    Returns:
        list of (path, reason): the photos that failed now.

    Raises:
        ValueError: no photo has proposals, or one is of another size than
            that which they were made for; it is named.
    """
    keys = [key for key, _ in photos]
    without = set(proposals.missing(keys))
    if len(without) == len(set(keys)):
        proposals.rows(keys)  # Raises what names them.
    why = {key: f", where it {x}" for key, x in proposals.failed.items()}
    failures = []
    shards = extraction.remaining_shards(photos, writer, shard_images)
    good = [[photo for photo in x if photo[0] not in without] for x in shards]
    decoded = extraction.decoded_by_shard(good, images.decode_photo, 1)
    for whole, (shard, batches) in zip(shards, decoded):
        found = {}
        for [at], [pixels] in batches:
            key, pixels = shard[at][0], pixels.numpy()
            regions = _regions(extractor, pixels, proposals, key, writer.dtype)
            found[at] = (key, *regions)
            progress(1)
        failed = extraction.failed_photos(shard, found) + [
            (key, path, f"has no proposals{why.get(key, '')}")
            for key, path in whole
            if key in without
        ]
        failures += add_regions(writer, list(found.values()), failed)
        progress(len(failed))
    return failures


def _regions(extractor, pixels, proposals, key, dtype):
    """Returns features, boxes, scores and the size of one photo."""
    size, [row] = pixels.shape[1::-1], proposals.rows([key])
    boxes, scores = proposals.boxes(row)
    if proposals.sizes is not None and tuple(proposals.sizes[row]) != size:
        expected = " x ".join(map(str, proposals.sizes[row]))
        raise InputError(
            "`proposals` must be those of these photos. Received: "
            f"{proposals.path}, where {key!r} has {expected} "
            f"pixels, and a photo of {size[0]} x {size[1]}. Propose regions "
            "for these photos, or name the folder of the others."
        )
    with np.errstate(over="ignore"):  # The writer refuses what is infinite.
        features = extractor(pixels, boxes).astype(dtype)
    return features, boxes, scores, size


def add_regions(writer, found, failed):
    """Writes the regions of some photos, and which photos failed.

    Args:
        writer: a `FeatureWriter` of kind "regions".
        found: list of (id, features, boxes, scores, size), one a photo; no
            features (None) for a store of boxes alone, no scores where
            nobody knows them.
        failed: list of (id, path, reason).

    Returns:
        list of (path, reason): the photos that failed.
    """
    ids, arrays = (), ()
    if found:
        ids, *parts, sizes = zip(*found)
        counts = [len(boxes) for boxes in parts[1]]
        features, boxes, scores = (
            None if some[0] is None else np.concatenate(some) for some in parts
        )
        arrays = features, boxes, counts, scores, np.array(sizes)
    reasons = {key: reason for key, _, reason in failed}
    writer.add_shard(ids, *arrays, failed=reasons)
    return [(path, reason) for _, path, reason in failed]


def propose_photos(
    photos,
    proposer,
    writer,
    *,
    workers=1,
    shard_images=extraction.SHARD_IMAGES,
    progress=lambda count: None,
):
    """Writes the proposals of photos into a store of boxes and scores.

    Photos are worked on side by side, but stored in order, a shard at a
    time: stopped at any moment and called again, it writes the same bytes.
    A photo that does not decode is noted in the store with the reason.

    Args:
        photos: list of (id, path); those the store has are left out.
        proposer: a `Proposer`.
        writer: a `FeatureWriter` of kind "regions" and dim 0.
        workers: photos worked on at once. They are threads: nearly all the
            time is spent in OpenCV, which does not hold Python's lock.
        shard_images: photos a shard.
        progress: called with the number of photos done since the last call.

    Returns:
        list of (path, reason): the photos that failed now.
    """
    failures = []

    def work(photo):
        key, path = photo
        try:
            pixels = images.read_photo(path)
            return key, None, *proposer(pixels), pixels.shape[1::-1]
        except images.BrokenImageError as error:
            return key, path, error.reason

    shards = extraction.remaining_shards(photos, writer, shard_images)
    cv2 = import_opencv()
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)  # It works in the thread that calls it.
    try:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for shard in shards:
                found, failed = [], []
                for result in pool.map(work, shard):
                    (failed if len(result) == 3 else found).append(result)
                    progress(1)
                failures += add_regions(writer, found, failed)
    finally:
        cv2.setNumThreads(before)
    return failures
