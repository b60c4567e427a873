"""What a user asks for: a module a verb, called from a shell or from Python.

A module has `Options`, a group of flags; `main(options)`, which does what the
verb says and returns the exit code, or None; and a docstring that teaches.
`tbnets VERB` and `python tools/VERB.py` are the same call.

::

    from tbnets.commands import query
    query.main(query.Options(images="photos", queries=["a dog in the snow"]))
"""

import difflib
import importlib
import os
import sys

import tbnets
from tbnets import startup
from tbnets.errors import InputError
from tbnets.flags.command_line import CommandLine
from tbnets.flags.flag import flags_of
from tbnets.flags.help import format_help

VERBS = {
    "train": "trains a network, measures its best epoch, exports it",
    "evaluate": "measures a run, two taken together, or saved arrays",
    "export": "exports a run's network once more, or otherwise",
    "query": "searches photos by sentences, or sentences by a photo",
    "localize": "finds the boxes that phrases name in a photo",
    "describe_data": "tells what data hold, and what is wrong with them",
    "extract_image_features": "photos, or boxes in them -> features",
    "extract_text_features": "captions -> tf-idf, means, Fisher vectors",
    "propose_regions": "photos -> boxes that may hold an object",
    "parse_captions": "captions -> trees",
    "make_scenes": "draws the embedded data set",
}
"""Verb -> what it does, in the order in which people come to it."""
_HELP = {"--help", "-help", "--helpshort", "-h", "-?"}


def main():
    """Runs `tbnets VERB ...`: the console script that pip installs."""
    startup.run(lambda: _choose(sys.argv[1:]))


def run_tool(module_or_verb):
    """Runs a verb, or the module of a tool, on this process's command line."""
    startup.run(lambda: call(module_or_verb, sys.argv[1:]))


def _choose(words):
    """Runs the verb that comes first; without one, tells which there are."""
    if not words or words[0] in _HELP:
        _show(overview())
        return 0
    if words[0] == "--version":
        print(tbnets.__version__)
        return 0
    return call(verb_of(words[0]), words[1:])


def overview():
    """Returns what `tbnets --help` shows: a line a verb."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:{width}}  {text}" for verb, text in VERBS.items()]
    return (
        "Networks for image-text matching and phrase localization.\n\n"
        "  tbnets VERB --flag=value ...\n\n" + "\n".join(lines) + "\n\n"
        "The first letters of a verb will do: tbnets describe.\n"
        "tbnets VERB --help tells more.\n"
    )


def verb_of(word):
    """Returns the verb that a word is, or is the beginning of.

    Raises:
        ValueError: it is none, or more than one begins so.
    """
    fitting = [verb for verb in VERBS if verb.startswith(word)]
    if word in VERBS:
        return word
    if len(fitting) == 1:
        return fitting[0]
    near = fitting or difflib.get_close_matches(word, VERBS)
    raise InputError(
        f"`tbnets` must be given one of its verbs. Received: {word}. "
        + (f"Did you mean {' or '.join(near)}? " if near else "")
        + "tbnets --help lists all."
    )


def call(verb, words):
    """Does what a verb says.

    Args:
        verb: key of `VERBS`, or a module like those of this folder.
        words: the command line behind it.

    Returns:
        The exit code, or None.

    Raises:
        UserError: see `CommandLine`, and what the verb says.
    """
    module = verb
    if isinstance(verb, str):
        with startup.quiet_tensorflow():
            module = importlib.import_module(f"tbnets.commands.{verb}")
    flags = flags_of(module.Options)
    if _HELP & set(words):
        sections = {"Flags": flags}
        if hasattr(module, "help_sections"):
            sections = module.help_sections()
        _show(startup.spoken(format_help(module.__doc__, sections)))
        return 0
    if not hasattr(module, "GROUPS"):
        return module.main(CommandLine(words, flags).take(module.Options))
    more = [flag for group in module.GROUPS for flag in flags_of(group)]
    line = CommandLine(words, [*flags, *more])
    return module.main(line.take(module.Options), line)


def _show(text):
    """Prints a text, as much of it as is read: `--help | head`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # Python would flush once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
