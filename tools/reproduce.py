"""Writes the tables of results in README.md and docs/ from docs/measured/.

  python tools/reproduce.py

Prints the commands that train and record the runs of a row; `| sh` runs them:

  python tools/reproduce.py --run=flickr8k_mean --seeds=0,1,2

Writes docs/measured/flickr8k_mean.json, and updates the pages and the expected
numbers in the flag file:

  python tools/reproduce.py --record=runs/flickr8k_mean_0,runs/flickr8k_mean_1

The runs must be finished and may differ from their configuration only in the
seed, files and folders. Any other run needs its own row, named with --name.

Prints the numbers in tables of README.md and docs/ that come from no file:

  python tools/reproduce.py --check
"""

import dataclasses
import difflib
import re
import sys

from reproducing import checks, measured

from tbnets import cli
from tbnets.errors import InputError
from tbnets.files import write_text
from tbnets.tasks.settings.flag import configs_folder, flag, must_come_with


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the row to run, record or check."""

    record: list[str] = flag([], "Folders of finished runs, one for each seed.")
    name: str = flag("", "Name of the row of --record, if its flags differ.")
    cpu: str = flag(
        "", "Processor that trained the runs of --record; default: this one."
    )
    run: str = flag("", "Row or configuration: print its commands.")
    seeds: list[int] = flag([0], "Seeds of --run.")
    check: bool = flag(False, "Print numbers that no file explains.")


def commands_of(name, seeds):
    """Returns the commands that train and record the runs of a row."""
    known = measured.read()
    row = known_row(name, known)
    # An evaluation may combine the runs of several rows.
    combined = re.findall(r"\bruns/(\w+)_(?:\{seed\}|\d+)", row.evaluation)
    rows = [known_row(other, known) for other in (row.of or name, *combined)]
    lines = [_training(row, seed) for seed in seeds for row in rows]
    folders = ",".join(f"runs/{row.of or name}_{seed}" for seed in seeds)
    named = f" --name={name}" if row.flags or row.of else ""
    return [*lines, f"python tools/reproduce.py --record={folders}{named}"]


def known_row(name, known):
    """Returns the row named `name`, or a new row for this configuration."""
    names = {path.stem for path in configs_folder().glob("*.flags")}
    row = known.row(name)
    if row is None and name in names:
        return measured.Row(name=name, configuration=name)
    if row is None:
        rows = known.recorded.keys() | known.definitions.keys()
        near = difflib.get_close_matches(name, names | rows, 1)
        advice = f"Did you mean {near[0]}?" if near else "See configs/."
        raise InputError(
            "--run",
            "be the name of a row of docs/ or of a configuration",
            f"--run={name}",
            advice,
        )
    return row


def _training(row, seed):
    words = [row.flags, f"--seed={seed}", f"--run_dir=runs/{row.name}_{seed}"]
    if row.configuration:
        words.insert(0, f"--flagfile=configs/{row.configuration}.flags")
    return " ".join(["tbnets train", *filter(None, words)])


def main(options):
    """Prints commands, records runs, checks numbers or writes the tables."""
    for name in ("name", "cpu"):
        if getattr(options, name) and not options.record:
            raise must_come_with(options, name, "--record")
    if options.seeds != [0] and not (options.run and options.seeds):
        raise must_come_with(options, "seeds", "--run, and name one")
    if options.run:
        print("\n".join(commands_of(options.run, options.seeds)))
        return 0
    if options.record:
        from reproducing import recording

        cpu = options.cpu or recording.this_cpu()
        print(
            recording.record(options.record, options.name, cpu, measured.FOLDER)
        )
    results = measured.read()
    if options.check:
        return _check(results)
    for path, text in checks.generated_files(results).items():
        if path.read_text("utf-8") != text:
            write_text(path, text)
            print(path)
    return 0


def _check(results):
    problems = checks.findings(results)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} numbers that no file explains")
    return 1 if problems else 0


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
