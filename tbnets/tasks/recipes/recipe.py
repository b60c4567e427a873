"""A recipe: a flagfile that says what is made, not of what, nor where to.

Its flags are those of the verb that makes such a thing, without those that
name photos, captions or folders: the run that names the recipe knows these.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil

from tbnets.data.store.locks import FolderLock
from tbnets.data.store.manifest import MANIFEST, read_manifest
from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import hub
from tbnets.features.photo_cache import photo_sums
from tbnets.files import shown
from tbnets.progress import say
from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of, name_flags

# What a recipe makes of the data of a run, and where that is kept.
#
# A thing lies in `DATA_ROOT/made/NAME-DIGEST`: the name is that of the recipe,
# the digest that of all that decides what comes out. Another recipe, or other
# photos, have another folder, so what lies there never grows old.

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
                own = hub.package().files(name, side)
                files |= {f"{flag}/{k}": own[k] for k in own}
                files[flag] = own["config.json"]
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
                    f"--{name}",
                    "name files that can be read",
                    f"{path}, which {reason}",
                    "Mend it.",
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
                "--data_root",
                "be a folder that can be written, or that of the start, to "
                "keep what recipes make",
                f"{', '.join(map(str, self.roots))}, which can not",
                "Start in another folder.",
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


WORDS = ("", "imagenet", "random")
"""What a flag may say in the place of a file."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe that was read.

    Args:
        path: of the flagfile.
        values: the group of flags; files as they are found.
    """

    path: pathlib.Path
    values: object

    @property
    def name(self):
        """What the folders that it makes begin with."""
        return self.path.stem

    @property
    def places(self):
        """The flags that may name files of this machine: name -> value."""
        return self._decide(True)

    @property
    def files(self):
        """Those of them that do: name -> path."""
        return {k: v for k, v in self.places.items() if v not in WORDS}

    @property
    def words(self):
        """The others that decide what comes out: name -> value."""
        return self._decide(False)

    def _decide(self, is_place):
        found = {}
        for each in flags_of(type(self.values)):
            value = hub.unplaced(getattr(self.values, each.name))
            if each.is_place == is_place and not each.free:
                found[each.name] = value
        return found

    def found(self, sources):
        """Returns the same, files and presets as they lie below `Sources`."""
        starts, given = sources.starts, vars(self.values)
        values = {name: hub.placed(given[name], *starts) for name in given}
        with self.named():
            for name, value in self.files.items():
                values[name] = os.fspath(_file(name, value, sources))
        return dataclasses.replace(self, values=type(self.values)(**values))

    @contextlib.contextmanager
    def named(self, advice=""):
        """Lets errors say whose they are, and speak of its flags."""
        try:
            yield
        except UserError as error:
            name_flags(error, vars(self.values))
            if len(error.args) == 1:  # Those of the system have more.
                text = str(error).removeprefix(f"{self}: ")
                error.args = (f"{self}: {text}{advice}",)
            raise

    def __str__(self):
        """Returns what errors call it."""
        return os.fspath(self.path)


def read_recipe(flag, item, kind, sources):
    """Reads the recipe that a flag names.

    Args:
        flag: that names it.
        item: what it says.
        kind: the subclass of `thing.Thing` that it makes.
        sources: the run's `Sources`, from which files are found.

    Raises:
        ValueError, FileNotFoundError: it is not there, or has flags that are
            not of its kind; names the file and the flag.
    """
    if kind.preset and hub.is_hub(item):
        name = re.sub(r"\W+", "_", hub.unplaced(item))
        recipe = Recipe(pathlib.Path(name), kind.group(**{kind.preset: item}))
        return recipe.found(sources)
    if not item.endswith(".flags"):
        raise InputError(
            f"--{flag}",
            f"name a recipe of tools/{kind.verb}.py, a flagfile whose name "
            "ends in .flags",
            f"--{flag}={item}",
            "Write one.",
        )
    path = command_line.find_recipe(
        flag, item, kind.verb, sources.resolve(item)
    )
    words = command_line.expand([f"--flagfile={path}"])
    flags = flags_of(kind.group)
    for word in words:
        _check_known(word, kind, {each.name for each in flags})
    try:
        values = CommandLine(words, flags).take(kind.group)
    except InputError as error:
        text = str(error)
        place = "" if text.startswith(f"{path}:") else f"{path}: "
        raise InputError(f"{place}{text}") from error
    return Recipe(path, values).found(sources)


def _file(flag, value, sources):
    path = sources.resolve(value)
    if not path.is_file():
        raise MissingFileError(
            f"`--{flag}` must name a file. Received: --{flag}={value}, looked "
            f"for as {path}. Set --data_root to the folder that it lies in, "
            "or name it in full."
        )
    return path


def _check_known(word, kind, known):
    """Refuses a line that is no flag of what is made."""
    name = word.lstrip("-").partition("=")[0]
    if word.startswith("-") and (known & {name, name.removeprefix("no")}):
        return
    told = ", ".join(f"--{each}" for each in sorted(known))
    raise InputError(
        f"{command_line.flag_place(word)}expected flags of tools/"
        f"{kind.verb}.py that say what is made ({told}); found {shown(word)}. "
        "Of what it is made, how and where to, the run knows: take it away, or "
        "name a recipe of that tool."
    )
