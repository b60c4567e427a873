"""Stores that are made from photos, by recipes and by tools alike."""

import copy
import time

import tqdm

from tbnets.features import extraction
from tbnets.progress import progress_bar
from tbnets.tasks.recipes.thing import Thing, bytes_in, check_space

PROBE = 12
"""Photos that are worked on to learn what all of them cost."""


def work_through(photos, writer, what, work, photo_bytes=0, **options):
    """Does what is left with a bar, completes the store, and tells.

    Args:
        photos: list of (id, path).
        writer: the `FeatureWriter` of the store.
        what: is done, in a word.
        work: function as `extraction.extract`, of these two, `options` and
            `progress`.
        photo_bytes: about how many a photo takes in the store.
        **options: for `work`; a `progress` beside the bar's, too.

    Raises:
        ValueError: there is no room on the disk.
    """
    start, before = time.perf_counter(), len(writer.done)
    left = len(extraction.remaining(photos, writer))
    check_space(writer.path, left * photo_bytes)
    told = options.pop("progress", lambda count: None)
    with progress_bar(left, what, "photo", leave=True) as bar:

        def progress(count):
            bar.update(count)
            told(count)

        failures = work(photos, writer=writer, progress=progress, **options)
    writer.finish()
    seconds = time.perf_counter() - start
    for path, reason in failures:
        tqdm.tqdm.write(f"left out: {path}, which {reason}")
    done = len(writer.done) - before
    speed = f", {done / seconds:.1f} photos/s" if done else ""
    tqdm.tqdm.write(
        f"{done} photos in {seconds:.0f} s{speed}; {len(writer.done)} in "
        f"the store, {len(failures)} left out"
    )


class OfPhotos(Thing):
    """A store that a recipe makes of all photos that the captions name.

    Args:
        recipe: its `Recipe`.
        data: the run's `data.open.Data`.
        parts: as of `Thing`.

    Attributes:
        probe: arguments of `make` where a few are made.
    """

    probe = {}

    def __init__(self, recipe, data, parts=()):
        super().__init__(recipe, data, parts)
        self._photos = data.photos
        self.count = len(self._photos)

    def inputs(self):
        """Returns id, name and size of each photo."""
        return [[key, name, size] for key, _, name, size in self._photos]

    @property
    def photos(self):
        """The photos: list of (id, path)."""
        return [(key, path) for key, path, *_ in self._photos]

    def estimate(self, scratch):
        """Returns what all of it takes: (bytes, seconds), by making a little.

        The first step is not counted: what is run is compiled then.
        """
        few, times, counts = self.few(PROBE), [], []
        for one in (*few.parts, few):
            one.roots = (scratch,)
        for part in few.parts:
            part.make_if_missing()

        def progress(count):
            times.append(time.perf_counter())
            counts.append(count)

        few.make(few.folder, progress=progress, **self.probe)
        size = int(self.count / few.count * bytes_in(few.folder))
        each = (times[-1] - times[0]) / max(sum(counts[1:]), 1)
        return size, self.count * each

    def few(self, count):
        """Returns the store of the first photos."""
        few = copy.copy(self)
        for name in ("digest", "folder"):  # They are of all photos.
            vars(few).pop(name, None)
        few._photos = self._photos[:count]
        few.count = len(few._photos)
        few.parts = tuple(part.few(count) for part in self.parts)
        return few
