"""The regions of the photos of a split, in a store of region features."""

import functools

import numpy as np

from tbnets.data.batches import sampled
from tbnets.evaluation.boxes import non_maximum_suppression


def ranges(starts, ends):
    """Concatenates the integer ranges from `starts` to `ends` (exclusive).

    Returns (places, numbers): for each number in a range, the index of the
    range, and the number itself.
    """
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    places = np.repeat(np.arange(len(lengths)), lengths)
    return places, np.arange(len(places)) + (starts - before)[places]


class PhotoRegions:
    """The regions of each photo. A photo's regions are numbered from 0.

    Args:
        store: `data.store.reader.FeatureStore` of region features.
        rows: int `[num_images]`, each photo's row in the store.
        limit: maximum number of regions per photo, or None. Niu et al. 2017:
            19.
        most_overlap: a region is skipped if its IoU with an earlier region is
            larger.
    """

    def __init__(self, store, rows, limit=None, most_overlap=1.0):
        self.store = store
        self._photos = np.asarray(rows)
        self._limit = limit
        self._most_overlap = most_overlap

    @functools.cached_property
    def _kept(self):
        """The indices of each photo's regions among its stored regions."""
        limit = self._limit
        if self._most_overlap == 1:
            counts = self.store.counts[self._photos].tolist()
            return [np.arange(count)[:limit] for count in counts]
        photo_boxes = (self.store.boxes(row)[0] for row in self._photos)
        return [
            non_maximum_suppression(
                boxes, -np.arange(len(boxes)), self._most_overlap, limit
            )
            for boxes in photo_boxes
        ]

    @functools.cached_property
    def counts(self):
        """The number of regions per photo, int64 `[num_images]`."""
        return np.array([*map(len, self._kept)], np.int64)

    @functools.cached_property
    def boxes(self):
        """The boxes of each photo's regions, `[k, 4]` in pixels."""
        pairs = zip(self._photos, self._kept)
        return [self.store.boxes(row)[0][kept] for row, kept in pairs]

    @functools.cached_property
    def _rows(self):
        """(first, rows): a photo's first index in `rows`, rows in the store."""
        firsts = self.store.first_regions[self._photos]
        rows = [first + kept for first, kept in zip(firsts, self._kept)]
        first = np.cumsum(self.counts) - self.counts
        return first, np.concatenate([np.zeros(0, np.int64), *rows])

    def candidates(self, image):
        """Returns the boxes of a photo's regions, then of the whole photo.

        The boxes are float64 `[num_candidates, 4]`.
        """
        photo = [0, 0, *self.store.sizes[self._photos[image]]]
        return np.concatenate([self.boxes[image], [photo]]).astype(np.float64)

    def all_of(self, images):
        """Lists the regions of the photos `images`.

        Returns int64 arrays (places, numbers): for each region, the index of
        its photo in `images`, and its number.
        """
        counts = self.counts[images]
        return ranges(np.zeros_like(counts), counts)

    def rows(self, images, numbers):
        """Returns the rows of regions in the store, int64 `[n]`.

        `images`, int `[n]`, contains the rows of the regions' photos, and
        `numbers`, int `[n]`, the numbers of the regions.
        """
        first, rows = self._rows
        return rows[first[images] + numbers]

    def take(self, images, numbers):
        """Returns the features of regions, float32 `[n, dim]`.

        The arguments are as in `rows`.
        """
        return self.store.take_regions(self.rows(images, numbers))

    def samples(self):
        """Yields the region features of evenly spaced photos."""
        for row in sampled(len(self._photos)):
            numbers = np.arange(self.counts[row])
            yield self.take(np.full(len(numbers), row), numbers)
