"""Reads the recorded results in docs/measured/.

::

    docs/measured/NAME.json         metrics.json of finished runs, by seed
                  rows.json         configuration and flags of rows that are
                                    not plain configurations, by NAME
                  pages/PAGE.json   tables of the page PAGE, one for each
                                    generated `part`, see `pages`
                  published.json    tables of the papers
"""

import dataclasses
import pathlib
import statistics

from tbnets.checks import per_cent, rounded
from tbnets.files import CheckedFile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "measured"
_SHARES = "recall_at_", "precision", "accuracy", "chance", "bound", "photo"
_COUNTS = ("rank", "num_", "links")
_MADE_BY = ("configuration", "flags", "of", "evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of results. Without results, fields from `seeds` on are empty.

    Args:
        configuration: flag file in configs/; "" if `flags` contains all flags.
        flags: flags that follow the flag file.
        of: row whose runs are evaluated for this row, or "".
        evaluation: flags of tbnets evaluate; {seed} is replaced by the seed.
        values: formatted means over seeds, by metric.
        epochs: best epoch on dev, per seed.
        runs: dict {metric: number}, for each seed.
        train_seconds: seconds of training, per seed.
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
    """The content of docs/measured/.

    `recorded` maps names to the `Row`s with results in NAME.json. `definitions`
    maps names to the `Row`s without results in rows.json. `tables` maps the
    generated parts of pages to their tables. `published` contains the tables of
    papers.
    """

    recorded: dict
    definitions: dict
    tables: dict
    published: list

    def row(self, name):
        """Returns the row named `name`, with results if recorded, or None."""
        return self.recorded.get(name) or self.definitions.get(name)


def read(folder=FOLDER):
    """Reads the recorded results in a folder."""
    definitions = {
        name: Row(name=name, **row)
        for name, row in CheckedFile(folder / "rows.json").json().items()
    }
    recorded = {
        path.stem: _row_of(path.stem, CheckedFile(path).json())
        for path in sorted(folder.glob("*.json"))
        if path.stem not in ("published", "rows")
    }
    tables = {
        table["part"]: table
        for path in sorted((folder / "pages").glob("*.json"))
        for table in CheckedFile(path).json()
    }
    published = CheckedFile(folder / "published.json").json()
    return Measured(recorded, definitions, tables, published)


def _row_of(name, report):
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
    """Formats the value of a metric for pages."""
    if any(part in key for part in _SHARES):
        return per_cent(value)
    is_count = any(part in key for part in _COUNTS)
    return rounded(value).removesuffix(".0" if is_count else "")
