"""The commands of tbnets, for the shell and for Python.

The module of a command is named by its verb. It defines `Options`, a dataclass
of the flags, and `main(options)`, which returns the exit code or None. Its
docstring is the help text. In a clone, `python tools/train.py` is equivalent to
`tbnets train`; `evaluate` and `export` have such scripts, too. Other modules
are parts of commands: `data_flags` and `model_flags` of several, and `run_line`
of train.

::

    from tbnets.cli import query
    query.main(query.Options(images="photos", queries=["a dog in the snow"]))
"""

import difflib
import importlib
import shutil
import sys
import textwrap

import tbnets
from tbnets import startup
from tbnets.errors import InputError, UserError
from tbnets.tasks.settings.flag import (
    REQUIRED,
    CommandLine,
    flags_of,
    name_flag,
    written,
)

VERBS = {
    "train": "trains a network, measures its best epoch, exports it",
    "evaluate": "measures a run, two combined runs, or saved arrays",
    "export": "exports a run's network, or changes an export",
    "query": "searches photos by sentences, or sentences by a photo",
    "index": "makes a search index of photos or features",
    "embed": "embeds photos on Apache Beam, to Parquet files",
    "localize": "finds the boxes of phrases in a photo",
    "serve": "serves models like TensorFlow Serving, for trials",
    "demo": "serves a local page to search your photos",
    "zoo": "lists the models of the package",
    "ask": "sends requests to a model on a server",
    "describe_data": "prints statistics and problems of a data set",
    "extract_image_features": "extracts features of photos or boxes",
    "extract_text_features": "extracts features of captions, such as tf-idf",
    "propose_regions": "proposes boxes that may contain an object",
    "parse_captions": "parses captions into trees",
    "make_scenes": "draws a data set of scenes",
}
"""Maps each verb to its description, in the order in which users need them."""
SLOW = ("train", "evaluate", "export", "index", "embed")
"""Verbs that load TensorFlow and Keras, which takes several seconds."""
MOST_COLUMNS = 100
_HELP = {"--help", "-help", "--helpshort", "-h", "-?"}


def main():
    """Runs the console script, `tbnets VERB ...`."""
    startup.run(lambda: _choose(sys.argv[1:]))


def run_tool(module_or_verb):
    """Runs a command, given as a verb or module, with `sys.argv[1:]`."""
    startup.run(lambda: call(module_or_verb, sys.argv[1:]))


def _choose(words):
    if not words or words[0] in _HELP:
        print(overview(), end="")
        return 0
    if words[0] == "--version":
        print(tbnets.__version__)
        return 0
    return call(verb_of(words[0]), words[1:])


def overview():
    """Returns the text of `tbnets --help`, with one line per verb."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:{width}}  {text}" for verb, text in VERBS.items()]
    return (
        "Networks for image-text matching and phrase localization.\n\n"
        "  tbnets VERB --flag=value ...\n\n"
        + "\n".join(lines)
        + "\n\nA verb can be abbreviated: tbnets describe.\n"
        "tbnets VERB --help lists the flags of a verb.\n"
    )


def verb_of(word):
    """Returns the verb that a word names or abbreviates."""
    fitting = [verb for verb in VERBS if verb.startswith(word)]
    if word in VERBS:
        return word
    if len(fitting) == 1:
        return fitting[0]
    near = fitting or difflib.get_close_matches(word, VERBS)
    raise InputError(
        f"`tbnets` must be followed by a verb. Received: {word}. "
        + (f"Did you mean {' or '.join(near)}? " if near else "")
        + "tbnets --help lists the verbs."
    )


def call(verb, words):
    """Runs a command with the arguments `words`; returns its exit code or None.

    `verb` is a key of `VERBS`, or a module with `Options` and `main`. If `main`
    raises an error about an argument, the error names the flag that sets it.
    """
    module = verb
    if "--version" in words:
        print(tbnets.__version__)
        return 0
    if isinstance(verb, str):
        if verb in SLOW and not _HELP & set(words):
            print("loading TensorFlow ...", file=sys.stderr, flush=True)
        with startup.quiet_tensorflow():
            module = importlib.import_module(f"tbnets.cli.{verb}")
    flags = flags_of(module.Options)
    if _HELP & set(words):
        sections = {"Flags": flags}
        if hasattr(module, "help_sections"):
            sections = module.help_sections()
        print(format_help(module.__doc__, sections), end="")
        return 0
    groups = getattr(module, "GROUPS", ())
    known = [*flags, *(flag for group in groups for flag in flags_of(group))]
    line = CommandLine(words, known)
    options = line.take(module.Options)
    try:
        return module.main(options, line) if groups else module.main(options)
    except UserError as error:
        name_flag(error, known)
        raise


def format_help(text, sections):
    """Returns a program's help text: `text` followed by the flags.

    `sections` maps each title to a list of `Flag`s. Lines are wrapped to the
    width of the terminal, at most `MOST_COLUMNS`.
    """
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    parts = [text.strip()]
    for title, flags in sections.items():
        entries = [_format_flag(flag, max(width, 40)) for flag in flags]
        parts.append(f"{title}:\n\n" + "\n".join(entries))
    return "\n\n".join(parts) + "\n"


def _format_flag(flag, width):
    head = f"--{'[no]' * (flag.type is bool)}{flag.name}  {_default(flag)}"
    if flag.kind == "words":
        head = f"{flag.name.upper()} ..."
    words = [flag.help]
    if flag.choices:
        words.append(f"One of {', '.join(flag.choices)}.")
    whole = {"break_long_words": False, "break_on_hyphens": False}
    parts = []
    for text, indent in ((head, 2), (" ".join(words), 8)):
        filled = textwrap.fill(text, width - indent, **whole)
        parts.append(textwrap.indent(filled, " " * indent))
    return "\n".join(parts)


def _default(flag):
    value = flag.default
    if value is REQUIRED:
        return "(required)"
    if value is None or value in ("", []):
        return ""
    return f"(default: {written(value)})"
