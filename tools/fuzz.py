r"""Damages files, requests and processes, and tells what tbnets makes of it.

For instance:

  python tools/fuzz.py --mutations=1000
  python tools/fuzz.py --mutations=200 --readers=word_vectors_text,entities_xml
  python tools/fuzz.py --only=word_vectors_text:137
  python tools/fuzz.py --requests=600
  python tools/fuzz.py --wire=1000
  python tools/fuzz.py --kills=100
  python tools/fuzz.py --workers=2

--mutations writes a small valid file for every reader of the package, breaks
a copy of it in as many ways, and reads each. Three answers are right: an
error that names the file and says what to change, the result of the unbroken
file, or what a file that is valid in another way says. Anything else is a
fault: another exception, a crash, more than 5 seconds, more memory than 64 MB
and ten times the file. A fault is shown with its number, and --only shows it
again. docs/robustness.md has the tables.

--requests sends malformed requests to the models of the zoo, --wire to a
server of them by gRPC and REST (the extra `serving`), --kills ends
trainings and other tools by SIGKILL and starts them again. --workers trains
by so many processes of this machine, kills one of them, measures when the
others have ended and whether they name it, and lets all go on
(docs/distribution.md). The exit code is 1 where there was a fault. The harness
is tests/fuzz, so the tool runs in a clone of the repository.
"""

import dataclasses
import importlib
import pathlib
import sys

from tbnets import cli
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import Whole, flag

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is broken, and how often."""

    mutations: Whole = flag(0, "Broken files of each reader.")
    readers: list[str] = flag(
        [], "Only these readers; all of them unless given."
    )
    only: str = flag(
        "",
        "READER:NUMBER of one mutation: how it breaks the file and what came "
        "of it, with the traceback.",
    )
    seed: Whole = flag(0, "Seed of what is drawn.")
    requests: Whole = flag(0, "Malformed requests to the models of the zoo.")
    wire: Whole = flag(0, "Malformed requests to a server, by gRPC and REST.")
    kills: Whole = flag(0, "Tools to kill and start again.")
    workers: Whole = flag(0, "Workers, of which one is killed: 2 or more.")


HARNESSES = {
    "requests": "requests",
    "wire": "wire_run",
    "kills": "kills",
    "workers": "worker_kills",
}
"""Flag -> the module of tests/fuzz that does as often as it says."""


def read_broken_files(given):
    """Runs --mutations or --only; returns the number of faults."""
    from tests.fuzz import child, table
    from tests.fuzz.readers import READERS

    child.start_server()
    if given.only:
        return table.show_one(READERS, given.only, given.seed)
    readers = table.chosen(READERS, given.readers)
    return table.run(readers, given.mutations, given.seed)


def main(given):
    """Runs what was asked for; exits with 1 where there were faults."""
    faults = 0
    asked = {name: getattr(given, name) for name in HARNESSES}
    if not any([given.mutations, given.only, *asked.values()]):
        names = ", ".join(f"`--{name}`" for name in ("only", *HARNESSES))
        raise InputError(
            f"`--mutations`, {names} must be set, one of them. Received: none. "
            "Set --mutations=100 for a first look."
        )
    if given.only or given.mutations:
        faults += read_broken_files(given)
    for name, count in asked.items():
        if count:
            module = importlib.import_module(f"tests.fuzz.{HARNESSES[name]}")
            faults += module.run(count, given.seed)
    return int(faults > 0)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
