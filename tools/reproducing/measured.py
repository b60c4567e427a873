"""What was measured: the files below docs/measured, by the name of a row.

::

    docs/measured/NAME.json         metrics.json of finished runs, by seed
                  rows.json         how a row is made that is not just its
                                    configuration: NAME -> `_MADE_BY`
                  pages/PAGE.json   tables of the page PAGE, each the `part`
                                    that is written from rows, see `pages`
                  published.json    tables of the papers
"""

import dataclasses
import pathlib
import statistics

from tbnets.checks import per_cent, rounded
from tbnets.files import CheckedFile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "measured"
_SHARES = (
    *("recall_at_", "average_precision", "upper_bound", "accuracy"),
    *("correspondence_chance", "whole_photo", "pointing_chance"),
)
_COUNTS = ("rank", "num_", "links")
_MADE_BY = ("configuration", "flags", "of", "evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of ours.

    Args:
        name: of a configuration; with flags beside it, one of its own.
        configuration: flagfile below configs/; "" where flags say all.
        flags: those that follow it on the command line, as one string.
        of: the row whose runs are evaluated for this one; "" where training
            tells its numbers.
        evaluation: flags of tools/evaluate.py that they are evaluated by,
            as one string, {seed} for the run's.
        seeds: tuple; like what follows empty where nobody has run it yet.
        cpu: in words.
        date: of the last run.
        values: dict, metric -> number as it is shown: of several seeds the
            mean.
        epochs: that were chosen on dev, by seed.
        runs: tuple, by seed a dict of metric -> number.
        train_seconds: by seed, of training alone.
    """

    name: str
    configuration: str
    flags: str = ""
    of: str = ""
    evaluation: str = ""
    seeds: tuple = ()
    cpu: str = ""
    date: str = ""
    values: dict = dataclasses.field(default_factory=dict)
    epochs: tuple = ()
    runs: tuple = ()
    train_seconds: tuple = ()


@dataclasses.dataclass(frozen=True)
class Measured:
    """All that was measured.

    Args:
        kept: dict, name -> `Row`, from files of runs.
        made: dict, name -> `Row` without numbers, from rows.json.
        parts: dict, name of a generated part of a page -> its table, as its
            file has it.
        published: list of tables of papers, as published.json has them.
    """

    kept: dict
    made: dict
    parts: dict
    published: list

    def row(self, name):
        """Returns the row of a name, with numbers if there are any, or None."""
        return self.kept.get(name) or self.made.get(name)


def read(folder=FOLDER):
    """Returns what is `Measured`."""
    made = {
        name: Row(name=name, **row)
        for name, row in CheckedFile(folder / "rows.json").json().items()
    }
    kept = {
        path.stem: _kept(path.stem, CheckedFile(path).json())
        for path in sorted(folder.glob("*.json"))
        if path.stem not in ("published", "rows")
    }
    parts = {
        table["part"]: table
        for path in sorted((folder / "pages").glob("*.json"))
        for table in CheckedFile(path).json()
    }
    published = CheckedFile(folder / "published.json").json()
    return Measured(kept, made, parts, published)


def _kept(name, report):
    seeds = report["seeds"]
    runs = tuple(
        {
            f"{split}/{key}": run[split][key]
            for split in ("test", "dev")
            for key in run[split]
        }
        for run in seeds.values()
    )
    values = {
        key: shown(key, statistics.fmean(run[key] for run in runs))
        for key in runs[0]
    }
    return Row(
        name=name,
        **{key: report.get(key, "") for key in _MADE_BY},
        **{key: report[key] for key in ("cpu", "date")},
        seeds=tuple(map(int, seeds)),
        values=values,
        epochs=tuple(run["best_epoch"] for run in seeds.values()),
        runs=runs,
        train_seconds=tuple(run["train_seconds"] for run in seeds.values()),
    )


def shown(key, value):
    """Returns a number of a metric as pages show it."""
    if any(part in key for part in _SHARES):
        return per_cent(value)
    is_count = any(part in key for part in _COUNTS)
    return rounded(value).removesuffix(".0" if is_count else "")
