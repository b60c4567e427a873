r"""Writes the tables of what was measured, the papers' and ours, into docs/.

  python tools/reproduce.py

writes its tables from the files in docs/measured. The commands of a row are

  python tools/reproduce.py --run=flickr8k_mean --seeds=0,1,2

which `| sh` runs; the last of them records what the runs measured:

  python tools/reproduce.py --record=runs/flickr8k_mean_0,runs/flickr8k_mean_1

writes docs/measured/flickr8k_mean.json from their metrics.json, and anew the
pages and what the flagfile expects. Runs must be finished, and by the flags of
their configuration but for seed, files and folders; by other flags they are a
row of their own, which --name names. And

  python tools/reproduce.py --check

says which numbers in tables of README.md and docs/ nothing stands behind.
"""

import dataclasses
import difflib
import shlex
import sys

from reproducing import checks, measured

from tbnets import commands, startup
from tbnets.errors import InputError
from tbnets.files import write_text
from tbnets.flags import flagfiles
from tbnets.flags.flag import flag, must_come_with


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is done beside writing the page."""

    record: list[str] = flag([], "Folders of finished runs, a seed each.")
    name: str = flag(
        "", "Name of the row of --record, where it has flags of its own."
    )
    cpu: str = flag(
        "", "Processor that trained the runs of --record; this one by default."
    )
    run: str = flag("", "Row, or configuration, whose commands are printed.")
    seeds: list[int] = flag([0], "Seeds of --run.")
    check: bool = flag(False, "Look for numbers that nothing stands behind.")


def commands_of(name, seeds):
    """Returns the commands that make a row and record it.

    Raises:
        ValueError: there is no such row and no such configuration, or
            training alone does not make it.
    """
    known = measured.read()
    row = known.row(name)
    names = {path.stem for path in flagfiles.folder().glob("*.flags")}
    if row is None and name not in names:
        near = difflib.get_close_matches(name, names | known.told.keys(), 1)
        advice = f"Did you mean {near[0]}?" if near else "See configs/."
        raise InputError(
            "`--run` must be the name of a row of docs/reproduction*.md or of "
            f"a configuration. Received: --run={name}. {advice}"
        )
    configuration, flags = name, ""
    if row is not None:
        configuration, flags = row.configuration, row.flags
        if row.measured_by:
            raise InputError(
                "`--run` must be a row that training makes. Received: "
                f"--run={name}, which {row.measured_by} makes of trained runs. "
                f"See docs/{row.source}."
            )
    folders = [f"runs/{name}_{seed}" for seed in seeds]
    train = f"python tools/train.py --flagfile=configs/{configuration}.flags"
    lines = [
        " ".join(
            filter(
                None, [train, flags, f"--seed={seed}", f"--run_dir={folder}"]
            )
        )
        for seed, folder in zip(seeds, folders)
    ]
    named = f" --name={shlex.quote(name)}" if flags else ""
    record = f"python tools/reproduce.py --record={','.join(folders)}{named}"
    return [*lines, record]


def main(options):
    """Does what the flags say."""
    for name in ("name", "cpu"):
        if getattr(options, name) and not options.record:
            raise must_come_with(options, name, "--record")
    if options.seeds != [0] and not (options.run and options.seeds):
        raise must_come_with(options, "seeds", "--run, and name one")
    if options.run:
        print("\n".join(commands_of(options.run, options.seeds)))
        return 0
    if options.record:
        with startup.quiet_tensorflow():
            from reproducing import recording

        cpu = options.cpu or recording.this_cpu()
        print(
            recording.record(options.record, options.name, cpu, measured.FOLDER)
        )
    found = measured.read()
    if options.check:
        return _check(found)
    for path, text in checks.written(found).items():
        if path.read_text("utf-8") != text:
            write_text(path, text)
            print(path)
    return 0


def _check(found):
    problems = checks.findings(found)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} numbers that nothing stands behind")
    return 1 if problems else 0


if __name__ == "__main__":
    commands.run_tool(sys.modules[__name__])
