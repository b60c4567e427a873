"""Defines recipes: flag files that describe how to make features or trees.

A recipe sets the flags of the command that makes the result. The run supplies
the photos, captions and folders.
"""

import contextlib
import functools
import os
import pathlib
import re

from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import cache, hub, text_presets
from tbnets.files import can_be_written
from tbnets.progress import say
from tbnets.tasks.settings.flag import (
    CommandLine,
    find_flagfile,
    flags_of,
    name_flag,
)

# The results are in `DATA_ROOT/made`, a cache as described in `features.cache`,
# in folders `NAME-DIGEST` with the name of the recipe.

FORM = 3
"""Increase this number if a code change alters results."""


class Recipe:
    """A flag file, and the features, boxes or trees that it makes for a run.

    Attributes:
        verb: name of the command whose flags the recipe sets.
        group: dataclass of these flags.
        preset: flag of the recipe that takes a Keras Hub preset, or "".
        flagfile: path of the flag file.
        values: the flags, an instance of `group`.
        roots: caches for results. A new result is written to the first
            writable cache.
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
        """Returns a JSON value on which all vectors depend, such as texts."""

    def make(self, folder):
        """Makes or completes the result in a folder, with a progress bar."""
        raise NotImplementedError

    def files(self):
        """Returns the files named by flags or by a preset, as {name: path}."""
        files, flag = _files(self.values), self.preset
        if flag and hub.is_hub(name := getattr(self.values, flag)):
            paths = text_presets.files(name)
            files |= {f"{flag}/{k}": paths[k] for k in paths}
            files[flag] = paths[min(paths)]
        return files

    @property
    def keys(self):
        """The keys of all photos or texts in the store, a dict by id."""
        raise NotImplementedError

    def is_made(self, folder):
        """Returns whether a folder holds the result of all photos or texts."""
        return cache.has_all(cache.open_cached(folder), self.keys.values())

    def open(self):
        """Opens the result as `Features` of the run's photos or texts."""
        return cache.open_cached(self.folder).under(self.keys)

    @property
    def path(self):
        """The path to open: the result's folder, or a file in the folder."""
        return self.folder

    @property
    def recorded(self):
        """The flags of the recipe and its `parts`, without files, to record."""
        parts = [part.recorded for part in self.parts]
        flags = _flags(self.values)
        names = flags.keys() - _files(self.values).keys()
        return {**{name: flags[name] for name in names}, "parts": parts}

    @functools.cached_property
    def description(self):
        """A JSON value of everything that determines a result."""
        flags, files = _flags(self.values), self.files()
        keys, _ = self.file_keys.read(files)
        return {
            "form": FORM,
            "verb": self.verb,
            "inputs": self.inputs(),
            "flags": flags | {name: keys.get(name) for name in files},
            "parts": [part.description for part in self.parts],
        }

    @functools.cached_property
    def file_keys(self):
        """The `FileKeys` of the cache for new results."""
        roots = filter(can_be_written, self.roots)
        return cache.FileKeys(next(roots, self.roots[0]))

    @functools.cached_property
    def folder(self):
        """The result's folder `ROOT/NAME-DIGEST`, which need not exist."""
        name = self.flagfile.stem
        places = [
            cache.store_folder(root, name, self.description)
            for root in self.roots
        ]
        for place in places:
            if self.is_made(place):
                return place
        can = [place for place in places if can_be_written(place)] or places
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
        with named(self.flagfile, self.values), cache.written_alone(place):
            if not self.is_made(place):
                say(f"making    {place}, by {self.flagfile}")
                self.make(place)

    def check(self):
        """Raises an error if the result cannot be made."""


def _read_flags(flag, item, kind, sources):
    path = find_flagfile(item, "", flag, sources.resolve(item))
    words, flags = [f"--flagfile={path}"], flags_of(kind.group)
    try:
        return path, CommandLine(words, flags).take(kind.group)
    except InputError as error:
        text = str(error)
        place = "" if text.startswith(f"{path}:") else f"{path}: "
        raise InputError(f"{place}{text}") from error


def _flags(values):
    """Returns the flags that affect a result, as {name: value}."""
    return {
        each.name: hub.unplaced(getattr(values, each.name))
        for each in flags_of(type(values))
        if not each.free
    }


WORDS = ("", "imagenet", "random")
"""Values of a file flag that do not name files."""


def _files(values):
    flags = _flags(values)
    places = [each.name for each in flags_of(type(values)) if each.is_place]
    return {name: flags[name] for name in places if flags[name] not in WORDS}


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
def named(flagfile, values):
    """Adds a flag file and the names of its flags to errors in the block."""
    try:
        yield
    except UserError as error:
        name_flag(error, flags_of(values))
        if len(error.args) == 1:  # Not an error of the system.
            text = str(error).removeprefix(f"{flagfile}: ")
            error.args = (f"{flagfile}: {text}",)
        raise
