"""Reads tables on Markdown pages."""

import dataclasses
import re

_COMMAND = re.compile(r"\btools/\w+\.py|python -m |\btbnets [a-z]+ |--\w+=")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table on a page.

    `columns` are the cells of its first row. `rows` maps 1-based lines of the
    page to cells. `has_command` is whether its section, or the top of the page,
    has a command.
    """

    columns: tuple
    rows: dict
    has_command: bool


def tables(page):
    """Returns the `Table`s in the text of a page."""
    page_tables, section, top, fenced = [], [], [], False
    for line, text in enumerate([*page.splitlines(), "## end"], 1):
        fenced ^= text.startswith("```")
        if text.startswith("#") and not fenced:
            top = top or [text for _, text in section]
            page_tables += _tables_of(section, top)
            section = []
        section.append((line, text))
    return page_tables


def _tables_of(section, top):
    texts = [text for _, text in section if not text.startswith("|")]
    has_command = bool(_COMMAND.search("\n".join([*top, *texts])))
    rows = {}
    for line, text in [*section, (0, "")]:
        if text.startswith("|"):
            rows[line] = cells_of(text)
        elif rows:
            (_, columns), _, *body = rows.items()
            yield Table(columns, dict(body), has_command)
            rows = {}


def cells_of(text):
    """Returns the cells of a line of a table."""
    cells = re.split(r"(?<!\\)\|", text.strip())[1:-1]
    return tuple(cell.strip() for cell in cells)


def numbers(cell):
    """Returns the numbers in a cell as strings, with `-` if one is missing."""
    return re.findall(r"\d+(?:\.\d+)?|(?<!\S)-(?!\S)", cell)


def is_result(cell):
    """Returns whether a cell starts with a number like 1.5."""
    return bool(re.match(r"\**\d+\.\d", cell))
