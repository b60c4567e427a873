r"""Damages files, requests and processes, and tells what tbnets makes of it.

For instance:

  python tools/fuzz.py --mutations=1000
  python tools/fuzz.py --mutations=200 --readers=word_vectors_text,entities_xml
  python tools/fuzz.py --only=word_vectors_text:137
  python tools/fuzz.py --requests=600
  python tools/fuzz.py --kills=100

--mutations writes a small valid file for every reader of the package, breaks
a copy of it in as many ways, and reads each. Three answers are right: an
error that names the file and says what to change, the result of the unbroken
file, or what a file that is valid in another way says. Anything else is a
fault: another exception, a crash, more than 5 seconds, more memory than 64 MB
and ten times the file. A fault is shown with its number, and --only shows it
again. docs/robustness.md has the tables.

--requests sends malformed requests to the models of the zoo, --kills ends
trainings and other tools by SIGKILL and starts them again. The exit code is
1 where there was a fault. The harness is tests/fuzz, so the tool runs in a
clone of the repository.
"""

import pathlib
import sys

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

_MUTATIONS = flags.DEFINE_integer(
    "mutations", 0, "Broken files of each reader.", 0
)
_READERS = flags.DEFINE_list(
    "readers", [], "Only these readers; all of them unless given."
)
_ONLY = flags.DEFINE_string(
    "only",
    None,
    "READER:NUMBER of one mutation: how it breaks the file and what came of "
    "it, with the traceback.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of what is drawn.", 0)
_REQUESTS = flags.DEFINE_integer(
    "requests", 0, "Malformed requests to the models of the zoo.", 0
)
_KILLS = flags.DEFINE_integer("kills", 0, "Tools to kill and start again.", 0)


def main(_):
    """Runs what was asked for; exits with 1 where there were faults."""
    if not any((_MUTATIONS.value, _ONLY.value, _REQUESTS.value, _KILLS.value)):
        raise InputError(
            "`--mutations`, `--only`, `--requests` or `--kills` must be set. "
            "Received: none of them. Set --mutations=100 for a first look."
        )
    faults = 0
    if _REQUESTS.value:
        from tests.fuzz import requests

        faults += requests.run(_REQUESTS.value, _SEED.value)
    if _KILLS.value:
        from tests.fuzz import kills

        faults += kills.run(_KILLS.value, _SEED.value)
    return int(faults > 0)


if __name__ == "__main__":
    startup.run_tool(main)
