"""Reads recipes: flag files that describe how to make features or trees.

A recipe sets the flags of the command that makes the result. The run supplies
the photos, captions and folders.
"""

import contextlib
import copy
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import time

from tbnets.data.store.locks import FolderLock
from tbnets.data.store.manifest import MANIFEST, read_manifest
from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import hub
from tbnets.features.photo_cache import photo_sums
from tbnets.progress import say
from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of, name_flags

# A result is kept in the folder `DATA_ROOT/made/NAME-DIGEST`, with the name of
# the recipe and a digest of everything that determines the result. A different
# recipe or different photos give a different folder.

FORM = 2
"""Increase this number if a code change alters results."""
DIGITS = 8
SUMS = "sums.json"
PRESETS = {"cnn": "image", "features": "text"}
"""Maps a flag that may name a Keras Hub preset to the kind of its input."""


class RecipeResult:
    """The features, boxes or trees that a `Recipe` makes for a run.

    Subclasses also define `check()`, which raises an error if the result cannot
    be made.

    Attributes:
        verb: name of the command whose flags the recipe sets.
        group: dataclass of these flags.
        preset: flag of the recipe that takes a Keras Hub preset, or "".
        roots: folders for results. A new result is written to the first
            writable folder.
        items: list of the photos or texts.
        unit: "photo" or "text".
        parts: the `RecipeResult`s that are inputs of this result.
        sample: the number of items in the smallest sample of `estimate`.
    """

    verb, group, preset = "", None, ""
    unit, parts, sample = "photo", (), 4

    def __init__(self, recipe, data, items):
        self.recipe = recipe
        self.roots = data.original_sources.made_roots
        self.items = items

    @property
    def count(self):
        """The number of photos or texts."""
        return len(self.items)

    def inputs(self):
        """Returns the inputs of the result as a JSON value."""
        return self.items

    def make(self, folder):
        """Makes or completes the result in a folder, with a progress bar."""
        raise NotImplementedError

    def few(self, count, folder):
        """Returns a result for only the first `count` items, below `folder`."""
        few = copy.copy(self)
        few.items = self.items[:count]
        few.parts = tuple(part.few(count, folder) for part in self.parts)
        few.folder = folder / self.verb
        return few

    def size_like(self, few):
        """Estimates the size in bytes from `few`, a smaller result."""
        size = sum(path.stat().st_size for path in few.folder.iterdir())
        return size / few.count * self.count

    def estimate(self, scratch):
        """Estimates the size in bytes and the time in seconds from samples.

        Samples are made in the folder `scratch`. The first sample is made
        twice, because the first run includes imports and tracing. The next
        samples grow until one takes at least a second longer.
        """
        counts, seconds = [], []
        while len(counts) < 3 or (
            seconds[-1] < seconds[1] + 1 and counts[-1] > counts[-2]
        ):
            count = self.sample * 4 ** max(len(counts) - 1, 0)
            few = self.few(count, scratch / str(len(counts)))
            for part in few.parts:
                part.make(part.folder)
            start = time.perf_counter()
            few.make(few.folder)
            seconds.append(time.perf_counter() - start)
            counts.append(few.count)
        rate = (seconds[-1] - seconds[1]) / max(counts[-1] - counts[1], 1)
        return self.size_like(few), seconds[1] + self.count * max(rate, 0)

    def files(self):
        """Returns the files named by flags or by a preset, as {name: path}."""
        files = self.recipe.files
        for flag, side in PRESETS.items():
            if hub.is_hub(name := getattr(self.recipe.values, flag, "")):
                paths = hub.package().files(name, side)
                files |= {f"{flag}/{k}": paths[k] for k in paths}
                files[flag] = paths["config.json"]
        return files

    def is_made(self, folder):
        """Returns whether a folder holds the complete result."""
        is_there = (folder / MANIFEST).is_file()
        return is_there and read_manifest(folder).complete

    @property
    def path(self):
        """The path to open: the result's folder, or a file in the folder."""
        return self.folder

    @property
    def recorded(self):
        """The flags of the recipe and its `parts`, without files, to record."""
        parts = [part.recorded for part in self.parts]
        return {**self.recipe.words, "parts": parts}

    @functools.cached_property
    def digest(self):
        """The first digits of a SHA-256 digest of the recipe and inputs."""
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
        files = self.files()
        cache = next(filter(_can_be_written, self.roots), self.roots[0]) / SUMS
        paths = [os.path.abspath(path) for path in files.values()]
        digests = photo_sums("/", paths, cache)
        return {name: digest for name, (digest, _) in zip(files, digests)}

    @functools.cached_property
    def folder(self):
        """The result's folder `ROOT/NAME-DIGEST`, which need not exist."""
        name = f"{self.recipe.path.stem}-{self.digest}"
        places = [root / name for root in self.roots]
        for place in places:
            with self._explained(place):
                if self.is_made(place):
                    return place
        can = [place for place in places if _can_be_written(place)]
        if not can:
            raise InputError(
                "--data_root",
                "be a writable folder for the results of recipes, unless the "
                "current folder is writable",
                f"{', '.join(map(str, self.roots))}, which are not writable",
                "Start in another folder.",
            )
        return next((place for place in can if place.exists()), can[0])

    def missing(self):
        """Returns the missing results, in the order of their computation."""
        if self.is_made(self.folder):
            return []
        return [*(t for part in self.parts for t in part.missing()), self]

    def make_if_missing(self):
        """Makes missing `parts`, then the result. Other processes wait."""
        for result in self.missing():
            result._make_alone()

    def _make_alone(self):
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
                    say("\nstopped; run the command again to continue")
                    raise
            del lock

    @contextlib.contextmanager
    def _explained(self, place):
        advice = f" Or remove {place} to compute it again."
        with self.recipe.named(advice if place.exists() else ""):
            yield


def free_bytes(folder):
    """Returns the number of free bytes on the disk that holds a folder.

    The folder need not exist.
    """
    return shutil.disk_usage(_nearest(folder)).free


def _nearest(path):
    path = pathlib.Path(path).absolute()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _can_be_written(folder):
    """Returns whether a folder is writable.

    Returns False for a read-only folder, even for root.
    """
    nearest = _nearest(folder)
    may = nearest.is_dir() and nearest.stat().st_mode & 0o222
    return bool(may) and os.access(nearest, os.W_OK | os.X_OK)


WORDS = ("", "imagenet", "random")
"""Values of a file flag that do not name files."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe: the path of its flag file, and a flag group with its values."""

    path: pathlib.Path
    values: object

    @property
    def places(self):
        """The flags that may name files on this machine, as {name: value}."""
        return self._flag_values(True)

    @property
    def files(self):
        """The flags of `places` that name files, as {name: path}."""
        return {k: v for k, v in self.places.items() if v not in WORDS}

    @property
    def words(self):
        """The flags that affect the result and are not in `places`, by name."""
        return self._flag_values(False)

    def _flag_values(self, is_place):
        return {
            each.name: hub.unplaced(getattr(self.values, each.name))
            for each in flags_of(type(self.values))
            if each.is_place == is_place and not each.free
        }

    def located(self, sources):
        """Returns the recipe with its files and presets resolved."""
        starts, flags = sources.starts, vars(self.values)
        values = {name: hub.placed(flags[name], *starts) for name in flags}
        with self.named():
            for name, value in self.files.items():
                values[name] = os.fspath(_file(name, value, sources))
        return dataclasses.replace(self, values=type(self.values)(**values))

    @contextlib.contextmanager
    def named(self, advice=""):
        """Adds the recipe's path and flag names to errors in the block."""
        try:
            yield
        except UserError as error:
            name_flags(error, vars(self.values))
            if len(error.args) == 1:  # Not an error of the system.
                text = str(error).removeprefix(f"{self}: ")
                error.args = (f"{self}: {text}{advice}",)
            raise

    def __str__(self):
        return os.fspath(self.path)


def read_recipe(flag, item, kind, sources):
    """Reads `item`, a recipe or preset that is named by `flag`.

    `kind` is the subclass of `RecipeResult` that the recipe makes. The run's
    `sources` resolve relative paths in the recipe.
    """
    if kind.preset and hub.is_hub(item):
        name = re.sub(r"\W+", "_", hub.unplaced(item))
        recipe = Recipe(pathlib.Path(name), kind.group(**{kind.preset: item}))
        return recipe.located(sources)
    if not item.endswith(".flags"):
        raise InputError(
            f"--{flag}",
            f"be a recipe for tools/{kind.verb}.py, a flagfile whose name ends "
            "with .flags",
            f"--{flag}={item}",
            "Write a recipe.",
        )
    path = command_line.find_recipe(
        flag, item, kind.verb, sources.resolve(item)
    )
    words = command_line.expand([f"--flagfile={path}"])
    flags = flags_of(kind.group)
    try:
        values = CommandLine(words, flags).take(kind.group)
    except InputError as error:
        text = str(error)
        place = "" if text.startswith(f"{path}:") else f"{path}: "
        raise InputError(f"{place}{text}") from error
    return Recipe(path, values).located(sources)


def _file(flag, value, sources):
    path = sources.resolve(value)
    if not path.is_file():
        raise MissingFileError(
            f"`--{flag}` must be an existing file. Received: --{flag}={value}, "
            f"looked for at {path}. Set --data_root to its folder, or write "
            "its full path."
        )
    return path
