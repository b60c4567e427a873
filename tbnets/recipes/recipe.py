"""A recipe: a flagfile that says what is made, not of what, nor where to.

Its flags are those of the verb that makes such a thing, without those that
name photos, captions or folders: the run that names the recipe knows these.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple

from tbnets.checked_files import CheckedFile
from tbnets.data.sources import is_recipe
from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import hub
from tbnets.features.hub import is_hub
from tbnets.flags import flagfiles
from tbnets.flags.command_line import CommandLine
from tbnets.flags.flag import flags_of
from tbnets.flags.naming import as_flags

WORDS = ("", "imagenet", "random")
"""What a flag may say in the place of a file."""


class Kind(NamedTuple):
    """What the recipes of a flag make.

    Args:
        verb: whose flags they have.
        group: these flags, as a group.
        plan: (`Recipe`, the run's `data.open.Data`) -> `thing.Thing`; makes
            nothing, and refuses what can not be made.
    """

    verb: str
    group: type
    plan: Callable


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe that was read.

    Args:
        item: what names it, as it is written there.
        path: of the flagfile.
        kind: its `Kind`.
        values: the group of flags; files as they are found.
    """

    item: str
    path: pathlib.Path
    kind: Kind
    values: object

    @property
    def name(self):
        """What the folders that it makes begin with."""
        return self.path.stem

    @property
    def files(self):
        """The flags that name files: name -> path."""
        values = {name: getattr(self.values, name) for name in self.places}
        return {k: v for k, v in values.items() if v not in WORDS}

    @property
    def places(self):
        """Names of the flags that name files."""
        flags = flags_of(self.kind.group)
        return [each.name for each in flags if each.is_place]

    @property
    def decides(self):
        """The flags that decide what comes out: name -> value."""
        return {
            each.name: hub.unplaced(getattr(self.values, each.name))
            for each in flags_of(self.kind.group)
            if not each.free
        }

    @contextlib.contextmanager
    def named(self, advice=""):
        """Lets errors say whose they are, and speak of its flags."""
        try:
            yield
        except UserError as error:
            if len(error.args) == 1:  # Those of the system have more.
                names = {each.name for each in flags_of(self.kind.group)}
                text = as_flags(str(error), names).removeprefix(f"{self}: ")
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
        kind: the `Kind` that it must be.
        sources: the run's `Sources`, from which files are found.

    Raises:
        ValueError, FileNotFoundError: it is not there, or has flags that are
            not of its kind; names the file and the flag.
    """
    if is_hub(item):
        return _of_preset(item, kind, sources.starts)
    place = sources.resolve(item)
    path = flagfiles.find_recipe(flag, item, kind.verb, place)
    words = flagfiles.expand([f"--flagfile={path}"])
    flags = flags_of(kind.group)
    for word in words:
        _check_known(path, word, kind, {each.name for each in flags})
    try:
        values = CommandLine(words, flags).take(kind.group)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    recipe = Recipe(item, path, kind, values)
    with recipe.named():
        found = {
            name: os.fspath(_file(name, value, sources))
            for name, value in recipe.files.items()
        }
    return dataclasses.replace(
        recipe, values=dataclasses.replace(values, **found)
    )


def _of_preset(item, kind, starts):
    """Returns the recipe that the name of a preset stands for."""
    name = re.sub(r"\W+", "_", hub.unplaced(item))
    values = kind.group(features=hub.placed(item, *starts))
    return Recipe(item, pathlib.Path(name), kind, values)


def _file(flag, value, sources):
    path = sources.resolve(value)
    if not path.is_file():
        raise MissingFileError(
            f"`--{flag}` must name a file. Received: --{flag}={value}, looked "
            f"for as {path}. Set --data_root to the folder that it lies in, "
            "or name it in full."
        )
    return path


def _check_known(path, word, kind, known):
    """Refuses a line that is no flag of what is made."""
    name = word.lstrip("-").partition("=")[0]
    if word.startswith("-") and (known & {name, name.removeprefix("no")}):
        return
    file = CheckedFile(path)
    lines = [line.strip() for line in file.lines()[0]]
    line = lines.index(word) + 1 if word in lines else None
    file.refuse(
        f"flags of tools/{kind.verb}.py that say what is made "
        f"({', '.join(f'--{each}' for each in sorted(known))})",
        word,
        line,
        "Of what it is made, how and where to, the run knows: take it away, "
        "or name a recipe of that tool.",
    )


def check_is_recipe(flag, item, verb):
    """Refuses what is no recipe where a recipe must name one."""
    if not is_recipe(item):
        raise InputError(
            f"`--{flag}` must name a recipe of tools/{verb}.py, a flagfile "
            f"whose name ends in .flags. Received: --{flag}={item}. Write one."
        )
