"""The flags of a run as --help shows them: in the order of the data's way."""

from tbnets.flags.flag import what_reads
from tbnets.flags.table import ALL, GROUPS, TITLES
from tbnets.usage import Section

FIRST = (
    "flagfile",
    "run_dir",
    "resume",
    "scenes",
    "captions",
    "images",
    "image_features",
    "image_encoder",
    "text_encoder",
    "epochs",
    "example_query",
)
"""What a first run is made of; not repeated in the groups."""


_FLAGFILE = "File of flags, one a line. What follows it overrides it."


def run_sections():
    """Returns the `Section`s of a tool that trains."""
    first = {**_notes(FIRST), "flagfile": _FLAGFILE}
    sections = [Section("The flags to begin with", first)]
    for group, title in TITLES.items():
        names = [flag.name for flag in GROUPS[group]]
        notes = _notes(name for name in names if name not in FIRST)
        sections.append(Section(title, notes))
    return sections


def _notes(names):
    """Returns name -> under which other flags it is read."""
    return {
        name: f"Read with {what_reads(ALL[name])}."
        if name in ALL and ALL[name].when
        else ""
        for name in names
    }
