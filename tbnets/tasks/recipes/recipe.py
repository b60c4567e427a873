"""Defines recipes: flag files that describe how to make features or trees.

A recipe sets the flags of the command that makes the result. The run supplies
the photos, captions and folders.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re

from tbnets.data.store.locks import FolderLock
from tbnets.data.store.manifest import MANIFEST, read_manifest
from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import hub
from tbnets.features.photo_cache import photo_checksums
from tbnets.files import can_be_written
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


class Recipe:
    """A flag file, and the features, boxes or trees that it makes for a run.

    Subclasses also define `check()`, which raises an error if the result cannot
    be made.

    Attributes:
        verb: name of the command whose flags the recipe sets.
        group: dataclass of these flags.
        preset: flag of the recipe that takes a Keras Hub preset, or "".
        flagfile: path of the flag file.
        values: the flags, an instance of `group`.
        roots: folders for results. A new result is written to the first
            writable folder.
        items: list of the photos or texts.
        unit: "photo" or "text".
        parts: the `Recipe`s whose results are inputs of this result.
    """

    verb, group, preset = "", None, ""
    unit, parts = "photo", ()

    def __init__(self, flagfile, values, data, items):
        self.flagfile = flagfile
        self.values = values
        self.roots = data.original_sources.made_roots
        self.items = items

    @classmethod
    def read(cls, flag, item, data):
        """Reads `item`, a flag file or preset that is named by `flag`.

        The sources of the run's `data` resolve relative paths.
        """
        sources = data.original_sources
        if cls.preset and hub.is_hub(item):
            name = re.sub(r"\W+", "_", hub.unplaced(item))
            path, values = pathlib.Path(name), cls.group(**{cls.preset: item})
        else:
            path, values = _read_flags(flag, item, cls, sources)
        with named(path, values):
            return cls(path, _located(values, sources), data)

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

    def files(self):
        """Returns the files named by flags or by a preset, as {name: path}."""
        files = _files(self.values)
        for flag, side in PRESETS.items():
            if hub.is_hub(name := getattr(self.values, flag, "")):
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
        return {**_flags(self.values, False), "parts": parts}

    @functools.cached_property
    def digest(self):
        """The first digits of a SHA-256 digest of the recipe and inputs."""
        flags = _flags(self.values, False) | _flags(self.values, True)
        decides = {
            "form": FORM,
            "verb": self.verb,
            "flags": {**flags, **self._sums()},
            "of": self.inputs(),
            "parts": [part.digest for part in self.parts],
        }
        text = json.dumps(decides, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:DIGITS]

    def _sums(self):
        files = self.files()
        cache = next(filter(can_be_written, self.roots), self.roots[0]) / SUMS
        paths = [os.path.abspath(path) for path in files.values()]
        digests = photo_checksums("/", paths, cache)
        return {name: digest for name, (digest, _) in zip(files, digests)}

    @functools.cached_property
    def folder(self):
        """The result's folder `ROOT/NAME-DIGEST`, which need not exist."""
        name = f"{self.flagfile.stem}-{self.digest}"
        places = [root / name for root in self.roots]
        for place in places:
            with self.named(place):
                if self.is_made(place):
                    return place
        can = [place for place in places if can_be_written(place)]
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

        with self.named(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FolderLock.wait(place.parent, f".{place.name}.lock", wait)
            if not self.is_made(place):
                say(f"making    {place}, by {self.flagfile}")
                try:
                    self.make(place)
                except KeyboardInterrupt:
                    say("\nstopped; run the command again to continue")
                    raise
            del lock

    def named(self, place=None):
        """Adds the flag file and advice to errors in the block, see `named`.

        The advice is to remove `place`, the folder of the result, if it exists.
        """
        advice = ""
        if place and place.exists():
            advice = f" Or remove {place} to compute it again."
        return named(self.flagfile, self.values, advice)


def _read_flags(flag, item, kind, sources):
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
    try:
        return path, CommandLine(words, flags_of(kind.group)).take(kind.group)
    except InputError as error:
        text = str(error)
        place = "" if text.startswith(f"{path}:") else f"{path}: "
        raise InputError(f"{place}{text}") from error


def _flags(values, is_place):
    """Returns the flags that affect a result, as {name: value}.

    If `is_place` is true, they are the flags that may name files on this
    machine, otherwise all others.
    """
    return {
        each.name: hub.unplaced(getattr(values, each.name))
        for each in flags_of(type(values))
        if each.is_place == is_place and not each.free
    }


WORDS = ("", "imagenet", "random")
"""Values of a file flag that do not name files."""


def _files(values):
    places = _flags(values, True)
    return {name: places[name] for name in places if places[name] not in WORDS}


def _located(values, sources):
    """Returns a flag group with its files and presets resolved."""
    flags = vars(values)
    located = {k: hub.placed(flags[k], *sources.starts) for k in flags}
    for name, value in _files(values).items():
        path = sources.resolve(value)
        if not path.is_file():
            raise MissingFileError(
                f"`--{name}` must be an existing file. Received: "
                f"--{name}={value}, looked for at {path}. Set --data_root to "
                "its folder, or write its full path."
            )
        located[name] = os.fspath(path)
    return type(values)(**located)


@contextlib.contextmanager
def named(flagfile, values, advice=""):
    """Adds a flag file and the names of its flags to errors in the block."""
    try:
        yield
    except UserError as error:
        name_flags(error, vars(values))
        if len(error.args) == 1:  # Not an error of the system.
            text = str(error).removeprefix(f"{flagfile}: ")
            error.args = (f"{flagfile}: {text}{advice}",)
        raise
