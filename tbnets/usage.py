"""What a tool says of itself: --help, and a line for a flag it has not.

absl shows flags in the order of the alphabet and ends --help with exit code
1, as if it were an error. Here they stand in sections, in the order in which
a reader wants them, each with its default.
"""

import os
import shutil
import sys
import textwrap
from typing import NamedTuple

from absl import flags

MOST_COLUMNS = 100
_REQUIRED = (
    "must have a value other than None"  # What absl says of such a flag.
)


class Section(NamedTuple):
    """Flags under a title.

    Args:
        title: what they are about.
        notes: name of a flag -> what stands behind its help, or "". absl's
            --flagfile, which it parses but does not tell of, has no other.
    """

    title: str
    notes: dict


class _HelpFlag(flags.BooleanFlag):
    """A flag that prints a text and ends, in place of absl's.

    Args:
        name: `help` or `helpshort`.
        text: function () -> the text.
    """

    def __init__(self, name, text):
        super().__init__(
            name,
            False,
            "Show this help.",
            short_name="?" if name == "help" else None,
            allow_override=True,
        )
        self._text = text

    def parse(self, argument):
        super().parse(argument)
        if self.value:
            _show(self._text())
            sys.exit(0)


def _show(text):
    """Prints a text, as much of it as is read: `--help | head`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # Python would flush once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser(main, sections=None):
    """Returns what parses the command line of a tool, for `app.run`.

    Args:
        main: the tool's function; its module's docstring heads the help.
        sections: function () -> list of `Section`; None: the tool's own flags
            as it defines them.

    Returns:
        Function from the words of a command line to those that are no flags.
    """

    def text():
        title = main.__globals__.get("__doc__") or ""
        return format_help(title, sections() if sections else own_flags())

    def parse(line):
        for name in ("help", "helpshort"):
            flags.DEFINE_flag(_HelpFlag(name, text))
        try:
            return flags.FLAGS(line)
        except flags.Error as error:
            message = " ".join(str(error).split()).rstrip(".")
            tool = os.path.basename(line[0])
            sys.exit(f"error: {message}. See {tool} --help.")

    return parse


def own_flags():
    """Returns one section of the tool's own flags, as it defines them."""
    found = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    return [Section("Flags", {flag.name: "" for flag in found})]


def format_help(title, sections, width=None):
    """Returns the help of a tool.

    Args:
        title: text that is shown as it is.
        sections: list of `Section`.
        width: columns to wrap flags to; None: those of the terminal.
    """
    if width is None:
        width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    parts = [title.strip()]
    for section in sections:
        entries = [
            _format_flag(name, note, width)
            for name, note in section.notes.items()
        ]
        parts.append(f"{section.title}:\n\n" + "\n".join(entries))
    return "\n\n".join(parts) + "\n"


def _format_flag(name, note, width):
    """Returns a line with a flag's name and default, then what it is."""
    head, words = f"--{name}", note
    if name in flags.FLAGS:
        flag = flags.FLAGS[name]
        head = f"--{'[no]' * flag.boolean}{name}  {_default(flag)}"
        words = f"{_what(flag)} {note}"
    lines = []
    for text, indent in ((head, 2), (words, 8)):
        lines += textwrap.wrap(
            text,
            max(width, 40),
            initial_indent=" " * indent,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _what(flag):
    """Returns a flag's help, with its values last."""
    if not isinstance(flag, flags.EnumFlag):
        return flag.help
    # absl puts the values first, in one long word.
    values = flag.parser.enum_values
    words = flag.help.removeprefix(f"<{'|'.join(values)}>: ")
    return f"{words} One of {', '.join(values)}."


def _default(flag):
    """Returns a flag's default in brackets; "" where there is none."""
    if any(_REQUIRED in validator.message for validator in flag.validators):
        return "(required)"
    value = flag.default
    if value is None or value in ("", []):
        return ""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, bool):
        value = str(value).lower()
    return f"(default: {value})"
