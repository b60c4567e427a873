"""What a recipe makes of the data of a run, and where that is kept.

A thing lies in `DATA_ROOT/made/NAME-DIGEST`: the name is that of the recipe,
the digest that of all that decides what comes out. Another recipe, or other
photos, have another folder, so what lies there never grows old.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil

from tbnets.data.store.manifest import MANIFEST, read_manifest
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.photo_cache import photo_sums
from tbnets.features.preset_files import CONFIG
from tbnets.locks import FolderLock
from tbnets.progress import say

FORM = 1
"""Raise it when other things are made of what a digest tells."""
DIGITS = 8
SUMS = "sums.json"
PRESETS = {"cnn": "image", "features": "text"}
"""Flag of a recipe that may name a preset of Keras Hub -> the side of it."""


class Thing:
    """What a recipe makes of the data of a run.

    Args:
        recipe: its `Recipe`.
        data: the run's `data.open.Data`.
        parts: `Thing`s that it is made of.

    Attributes:
        verb: of which tool its recipes are.
        group: their flags.
        preset: the flag by which a preset of Keras Hub alone is a recipe.
        roots: folders that keep what recipes make; the first that can be
            written gets what is not there yet.
        count: of how many photos or texts it is made.
        unit: what these are, in the singular.
        num_bytes: that it will have; 0 where `check` does not tell.
    """

    verb, group, preset = "", None, ""
    unit, num_bytes = "photo", 0

    def __init__(self, recipe, data, parts=()):
        self.recipe = recipe
        self.roots = data.given.made_roots
        self.parts = tuple(parts)

    def inputs(self):
        """Returns what it is made of, as a JSON value."""
        raise NotImplementedError

    def make(self, folder):
        """Makes it in a folder, in which a part of it may lie; shows a bar."""
        raise NotImplementedError

    def estimate(self, scratch):
        """Returns what all of it takes: (bytes, seconds), by making a few.

        Args:
            scratch: folder for these.
        """
        raise NotImplementedError

    def check(self):
        """Refuses what the recipe asks for and can not be, once built."""

    def files(self):
        """Returns the files that decide: name -> path.

        They are those that flags of the recipe mean, and those of a preset:
        its configuration stands for the flag, the others are called as no
        flag is.
        """
        files = self.recipe.files
        for flag, side in PRESETS.items():
            if hub.is_hub(name := getattr(self.recipe.values, flag, "")):
                own = hub.files(name, side)
                files |= {f"{flag}/{k}": own[k] for k in own}
                files[flag] = own[CONFIG]
        return files

    def is_made(self, folder):
        """Tells whether all of it lies in a folder."""
        is_there = (folder / MANIFEST).is_file()
        return is_there and read_manifest(folder).complete

    @property
    def path(self):
        """What reads it opens: its folder, or a file there."""
        return self.folder

    @property
    def said(self):
        """What recipes say of it, files of this machine aside; for a run."""
        parts = [part.said for part in self.parts]
        return {**self.recipe.words, "parts": parts}

    @functools.cached_property
    def digest(self):
        """The first digits of a sha256 of all that decides what comes out."""
        recipe = self.recipe
        decides = {
            "form": FORM,
            "verb": self.verb,
            "flags": {**recipe.words, **recipe.places, **self._sums()},
            "of": self.inputs(),
            "parts": [part.digest for part in self.parts],
        }
        text = json.dumps(decides, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:DIGITS]

    def _sums(self):
        """Returns what files hold: name of a flag -> sha256."""
        files = self.files()
        kept = next(filter(_can_be_written, self.roots), self.roots[0]) / SUMS
        paths = [os.path.abspath(path) for path in files.values()]
        sums = {}
        found = photo_sums("/", paths, kept)
        for (name, path), (sums[name], reason) in zip(files.items(), found):
            if reason:
                raise InputError(
                    f"`--{name}` must name files that can be read. Received: "
                    f"{path}, which {reason}. Mend it."
                )
        return sums

    @functools.cached_property
    def folder(self):
        """Where it lies, or will: `ROOT/NAME-DIGEST`."""
        name = f"{self.recipe.name}-{self.digest}"
        places = [root / name for root in self.roots]
        for place in places:
            with self._explained(place):
                if self.is_made(place):
                    return place
        can = [place for place in places if _can_be_written(place)]
        if not can:
            raise InputError(
                "`--data_root` must be a folder that can be written, or that "
                "of the start, to keep what recipes make. Received: "
                f"{', '.join(map(str, self.roots))}, which can not. Start in "
                "another folder."
            )
        return next((place for place in can if place.exists()), can[0])

    def missing(self):
        """Returns what is yet to be made: its parts and itself, in order."""
        if self.is_made(self.folder):
            return []
        return [*(one for part in self.parts for one in part.missing()), self]

    def make_if_missing(self):
        """Makes what is not there, its parts first; one process at a time.

        Raises:
            ValueError, OSError: what the recipe asks for can not be made, or
                a folder is damaged; tells which, and what to do.
        """
        for one in self.missing():
            one._make_alone()

    def _make_alone(self):
        """Makes it while no other process does."""
        place = self.folder

        def wait(who):
            say(f"waiting   for process {who}, which makes {place}")

        with self._explained(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FolderLock.wait(place.parent, f".{place.name}.lock", wait)
            if not self.is_made(place):
                say(f"making    {place}, by {self.recipe}")
                try:
                    self.make(place)
                except KeyboardInterrupt:
                    say("\nstopped; the same command goes on where it was")
                    raise
            del lock

    @contextlib.contextmanager
    def _explained(self, place):
        """Tells whose error it is; of a folder, that it can be made again."""
        advice = f" Or remove {place}: it is then made anew."
        with self.recipe.named(advice if place.exists() else ""):
            yield


def make_all(things):
    """Makes things, none of them before all are known to fit on the disk.

    Args:
        things: `Thing`s that are not there and checked, parts before the
            whole.

    Raises:
        ValueError, OSError: as of `Thing.make_if_missing`; or together they
            do not fit on the disk.
    """
    if things:
        left = [one.num_bytes - bytes_in(one.folder) for one in things]
        check_space(things[0].folder, sum(max(size, 0) for size in left))
    for one in things:
        one.make_if_missing()


def bytes_in(folder):
    """Returns how many bytes the files of a folder have; 0 without one."""
    return sum(path.stat().st_size for path in folder.glob("*"))


def free_bytes(folder):
    """Returns how many bytes can be written where a folder is, or will be."""
    return shutil.disk_usage(_nearest(folder)).free


def check_space(folder, num_bytes):
    """Refuses to begin what does not fit on the disk.

    Args:
        folder: where it is to lie; need not exist.
        num_bytes: that it will have.
    """
    free = free_bytes(folder)
    if num_bytes > free:
        raise InputError(
            f"{folder} must have room for {megabytes(num_bytes)} more. "
            f"Received: a disk with {megabytes(free)} free. Free some space, "
            "or choose another folder."
        )


def megabytes(size):
    """Returns a number of bytes in words."""
    size /= 2**20
    return f"{size:,.{0 if size > 10 else 1}f} MB"


def _nearest(path):
    """Returns the path, or the folder around it that is there."""
    path = pathlib.Path(path).absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _can_be_written(folder):
    """Tells whether it can; what is set to read only is not, of root either."""
    nearest = _nearest(folder)
    may = nearest.is_dir() and nearest.stat().st_mode & 0o222
    return bool(may) and os.access(nearest, os.W_OK | os.X_OK)
