"""Stores that are made from photos, by recipes and by tools alike."""

import copy
import os
import stat
import time

import tqdm

from tbnets.data.photos import find_photos
from tbnets.features import extraction
from tbnets.progress import progress_bar
from tbnets.recipes.thing import Thing, check_space


def work_through(photos, writer, what, work, photo_bytes=0, **options):
    """Does what is left with a bar, completes the store, and tells.

    Args:
        photos: list of (id, path).
        writer: the `FeatureWriter` of the store.
        what: is done, in a word.
        work: function as `extraction.extract`, of these two, `options` and
            `progress`.
        photo_bytes: about how many a photo takes in the store.
        **options: for `work`.

    Raises:
        ValueError: there is no room on the disk.
    """
    start, before = time.perf_counter(), len(writer.done)
    left = len(extraction.remaining(photos, writer))
    check_space(writer.path, left * photo_bytes)
    with progress_bar(left, what, "photo", leave=True) as bar:
        failures = work(photos, writer=writer, progress=bar.update, **options)
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
        make: function (photos, values of the recipe, folder) -> None.
        parts: as of `Thing`.
    """

    def __init__(self, recipe, data, make, parts=()):
        super().__init__(recipe, data.given.made_roots, parts)
        self._make = make
        self._photos = photos_of(data)

    @property
    def count(self):
        """Of how many photos it is made."""
        return len(self._photos)

    def inputs(self):
        """Returns id, name and size of each photo."""
        return [[key, name, size] for key, _, name, size in self._photos]

    def make(self, folder):
        """Makes it, or goes on."""
        photos = [(key, path) for key, path, *_ in self._photos]
        parts = [part.path for part in self.parts]
        self._make(photos, self.recipe.values, folder, *parts)

    def few(self, count):
        """Returns the store of the first photos."""
        few = copy.copy(self)
        for name in ("digest", "folder"):
            vars(few).pop(name, None)
        few._photos = self._photos[:count]
        few.parts = tuple(part.few(count) for part in self.parts)
        return few


def photos_of(data):
    """Returns the photos of all splits of a run's captions, which are there.

    Args:
        data: the run's `data.open.Data`.

    Returns:
        list of (id, path, name, bytes).

    Raises:
        ValueError, FileNotFoundError: --images is not given, or lacks photos
            of the splits that the run reads.
    """
    given, sources = data.given, data.sources
    for split in (given.train_split, given.dev_split, given.test_split):
        if data.has(split):
            data.split(split).photos  # noqa: B018  (it refuses)
    folder, path = sources.photo_folder, sources.file("captions")
    found = []
    for key, photo in find_photos(folder, sources.captions_format, path):
        try:
            state = os.stat(photo)
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            name = os.path.relpath(photo, folder)
            found.append((key, photo, name, state.st_size))
    return found
