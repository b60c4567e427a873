"""A recipe: a flagfile that says what is made, not of what, nor where to.

Its flags are those of the verb that makes such a thing, without those that
name photos, captions or folders: the run that names the recipe knows these.
"""

import contextlib
import dataclasses
import os
import pathlib
import re

from tbnets.checked_files import shown
from tbnets.errors import InputError, MissingFileError, UserError
from tbnets.features import hub
from tbnets.tasks.settings import flagfiles
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of
from tbnets.tasks.settings.naming import as_flags

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
            if len(error.args) == 1:  # Those of the system have more.
                names = {each.name for each in flags_of(type(self.values))}
                text = as_flags(str(error), names, vars(self.values))
                text = text.removeprefix(f"{self}: ")
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
            f"`--{flag}` must name a recipe of tools/{kind.verb}.py, a "
            "flagfile whose name ends in .flags. Received: "
            f"--{flag}={item}. Write one."
        )
    path = flagfiles.find_recipe(flag, item, kind.verb, sources.resolve(item))
    words = flagfiles.expand([f"--flagfile={path}"])
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
        f"{flagfiles.place_of(word)}expected flags of tools/{kind.verb}.py "
        f"that say what is made ({told}); found {shown(word)}. Of what it is "
        "made, how and where to, the run knows: take it away, or name a "
        "recipe of that tool."
    )
