"""What a run has in the end: arrays, by which it is compared with another."""

import json

import numpy as np

from tbnets.training.checkpoints import read_checkpoint


def of_run(folder):
    """Returns name -> array of all that a run keeps but for times.

    Args:
        folder: `pathlib.Path` of the run: checkpoints with weights, variables
            of the optimizer and history, and metrics.
    """
    arrays = {}
    for name in ("best", "last"):
        path = folder / "checkpoints" / f"{name}.npz"
        kept, _, state = read_checkpoint(path)
        arrays |= {f"{name} {key}": value for key, value in kept.items()}
        arrays[f"{name} epoch"] = np.array([state.epoch, state.best_epoch])
        for key in state.history[0].keys() - {"seconds"}:
            values = [row[key] for row in state.history]
            arrays[f"{name} {key}"] = np.array(values)
    report = json.loads((folder / "metrics.json").read_text())
    return arrays | {f"test {k}": v for k, v in report["test"].items()}


def difference(expected, found):
    """Returns in words how arrays of two runs differ; "" where not a bit."""
    if expected.keys() != found.keys():
        return f"other arrays: {sorted(expected.keys() ^ found.keys())[:3]}"
    for name, array in expected.items():
        if not np.array_equal(array, found[name]):
            return f"other numbers in {name}"
    return ""


def distance(expected, found):
    """Returns how far the last weights of a run are from another's.

    Returns:
        float, the length of their difference, relative to that of these.
    """
    names = [name for name in expected if name.startswith("last model/")]
    apart, length = (
        np.sqrt(sum(np.sum(np.square(x, dtype=float)) for x in arrays))
        for arrays in (
            [found[name] - expected[name] for name in names],
            [expected[name] for name in names],
        )
    )
    return float(apart / length)
