"""The arrays of a finished run, by which it is compared with another."""

import json

import numpy as np

from tbnets.training.checkpoints import read_checkpoint


def arrays_of_run(folder):
    """Returns name -> array of all that a run keeps but for times.

    Args:
        folder: `pathlib.Path` of the run: checkpoints with weights, variables
            of the optimizer and history, and metrics.
    """
    arrays = {}
    for name in ("best", "last"):
        kept, _, state = read_checkpoint(folder / "checkpoints" / f"{name}.npz")
        arrays |= {f"{name} {key}": value for key, value in kept.items()}
        arrays[f"{name} epoch"] = np.array([state.epoch, state.best_epoch])
        for key in state.history[0].keys() - {"seconds"}:
            values = [row[key] for row in state.history]
            arrays[f"{name} {key}"] = np.array(values)
    report = json.loads((folder / "metrics.json").read_text())
    return arrays | {f"test {k}": v for k, v in report["test"].items()}
