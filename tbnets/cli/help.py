"""Formats the text of --help."""

import shutil
import textwrap

from tbnets.tasks.settings.flag import REQUIRED, written

MOST_COLUMNS = 100


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
    head = f"--{'[no]' * (flag.kind == 'bool')}{flag.name}  {_default(flag)}"
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
