"""The command line: words -> values of flags, by absl."""

import copy
import functools
import re

from absl import flags as absl_flags

from tbnets.errors import InputError
from tbnets.tasks.settings import flagfiles
from tbnets.tasks.settings.flag import REQUIRED, check_limits, flags_of, written

_NUMBERS = {"integers": int, "floats": float}
_DEFINE = {
    "string": absl_flags.DEFINE_string,
    "integer": absl_flags.DEFINE_integer,
    "float": absl_flags.DEFINE_float,
    "bool": absl_flags.DEFINE_bool,
    "repeated": absl_flags.DEFINE_multi_string,
    **dict.fromkeys(("list", *_NUMBERS), absl_flags.DEFINE_list),
}


class CommandLine:
    """What was typed: the values of flags, and words that are none.

    Args:
        words: those behind the program's name.
        flags: the `Flag`s that there are; one of kind words has those that
            are no flags.

    Attributes:
        values: name -> value of each flag, its default where it is not given.
        given: names of the flags that are given, in a flagfile too.
        typed: names of those that stand on the command line itself.

    Raises:
        ValueError, FileNotFoundError: a flag is unknown, has no value that it
            can have, or must be given; or words are none.
    """

    def __init__(self, words, flags):
        parser = absl_flags.FlagValues()
        named = [flag for flag in flags if flag.kind != "words"]
        for flag in named:
            define = _DEFINE[flag.kind]
            if flag.choices:
                define = functools.partial(absl_flags.DEFINE, _Choice(flag))
            define(flag.name, None, flag.help, flag_values=parser)
        expanded = flagfiles.expand(words)
        try:
            others = parser(["", *expanded])[1:]
        except absl_flags.Error as error:
            raise InputError(_in_our_words(str(error), expanded)) from error
        self.given = {flag.name for flag in named if parser[flag.name].present}
        self.typed = _typed(words, named)
        self.values = {one.name: _value(one, parser[one.name]) for one in named}
        rest = {flag.name: others for flag in flags if flag.kind == "words"}
        if others and not rest:
            raise InputError(
                f"{flagfiles.place_of(others[0])}The command line must have "
                f"flags only. Received: {' '.join(others)}. Write --flag=value."
            )
        self.values |= rest

    def take(self, group):
        """Returns a group of flags with their values.

        Raises:
            ValueError: a number lies outside its limits.
        """
        names = [flag.name for flag in flags_of(group)]
        made = group(**{name: self.values[name] for name in names})
        check_limits(made)
        return made


class _Choice(absl_flags.EnumParser):
    """Reads a flag that has `choices`, of which one may stand for many."""

    def __init__(self, flag):
        super().__init__(flag.choices)
        self.enum_values = flag.choices  # absl makes it a list of these.


def _in_our_words(message, words):
    """Returns what absl says of a command line, on one line."""
    message = " ".join(message.split()).rstrip(".")
    message = _place(message, words) + message
    if flag := re.fullmatch(r"(.*)Missing value for flag (--\w+)", message):
        return (
            f"{flag[1]}`{flag[2]}` must have a value. Received: none. Write "
            f"{flag[2]}=VALUE; see --help."
        )
    return f"{message}. See --help."


def _place(message, words):
    """Returns where the flagfile is wrong that absl complains of, or ""."""
    named = re.search(r"flag (?:--|')([^':\s]+)", message)
    if not named:
        return ""
    meant = {named[1], named[1].partition("=")[0]}
    for word in words:
        flag = word.lstrip("-")
        if message.startswith("Unknown"):
            flag = flag.partition("=")[0]
        if flag in meant:
            return flagfiles.place_of(word)
    return ""


def _typed(words, flags):
    """Returns the names of the flags that words name."""
    told = [word for word in words if word.startswith("-")]
    names = {word.lstrip("-").partition("=")[0] for word in told}
    return {one.name for one in flags if names & {one.name, f"no{one.name}"}}


def _default(flag):
    if flag.default is REQUIRED:
        raise InputError(
            f"`--{flag.name}` must be given. Received: none. Write --"
            f"{flag.name}=VALUE, where VALUE is: {flag.help} See --help."
        )
    return copy.copy(flag.default)


def _value(flag, read):
    """Returns the value of a flag that was read; numbers of a list as such."""
    if not read.present:
        return _default(flag)
    if flag.kind not in _NUMBERS:
        return read.value
    try:
        return [_NUMBERS[flag.kind](item) for item in read.value]
    except ValueError as error:
        raise InputError(
            f"`--{flag.name}` must be {flag.kind} with commas between. "
            f"Received: --{flag.name}={written(read.value)}. A comment can not "
            "follow a value in a flagfile."
        ) from error
