"""Reading `metrics.json` of a run or of a model of the zoo.

It may have been edited, cut or damaged; a card is made of it, so what the
card shows is looked for first.
"""

from tbnets.files import CheckedFile, shown
from zoo_making import rows

_OF_BOTH = {
    "best_epoch": int,
    "epochs": int,
    "train_seconds": float,
    "test_split": dict,
    "versions": dict,
    "test": dict,
}
_OF_RUN = {**_OF_BOTH, "dev": dict}
_OF_MODEL = {
    **_OF_BOTH,
    "takes": str,
    "embedding_dim": int,
    "run_recall_sum": float,
    "date": str,
    "command": str,
}


def read_report(path):
    """Reads the `metrics.json` of a finished run with a test split.

    Raises:
        ValueError: it is damaged, or without test results.
        FileNotFoundError: there is none.
    """
    cure = "Let the run finish, or write it again by --resume."
    return _read(path, _OF_RUN, cure)


def read_metrics(path):
    """Reads the `metrics.json` of a model of the zoo.

    Raises:
        ValueError: it is damaged, or without what a card shows.
        FileNotFoundError: there is none.
    """
    return _read(path, _OF_MODEL, "Make the model anew, or restore the file.")


def _read(path, kinds, cure):
    file = CheckedFile(path)
    report = file.json()

    def check(value, kind, name):
        numbers = (int, float) if kind is float else (kind,)
        if type(value) not in numbers:
            file.report(
                f"expected {name} of type {kind.__name__}; found "
                f"{shown(value)}. {cure}"
            )

    check(report, dict, "results")
    for name, kind in kinds.items():
        check(report.get(name), kind, f"`{name}`")
    shown_names = [name for _, name, _ in rows.columns(report["test"])]
    for name in shown_names or ["recall_sum"]:
        check(report["test"].get(name), float, f"`{name}` in `test`")
    for name in ("tensorflow", "keras"):
        check(report["versions"].get(name), str, f"`{name}` in `versions`")
    check(report["test_split"].get("name"), str, "`name` in `test_split`")
    return report
