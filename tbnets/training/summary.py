"""What a run tells people: what is trained, on what, and what came of it."""

import platform

import keras
import numpy as np
import tensorflow as tf

import tbnets
from tbnets import startup
from tbnets.checked_files import CheckedFile
from tbnets.serving.export import next_version
from tbnets.training import checkpoints
from tbnets.training.checkpoints import SAVED_MODEL, checkpoint_path


def describe(session, train):
    """Returns a few lines on what is about to be trained."""
    task, network = session.task, session.network
    size = sum(int(np.prod(v.shape)) for v in network.trainable_variables)
    told = {"run": str(session.run_dir)}
    if session.state.epoch:
        told["run"] += f", continued after epoch {session.state.epoch}"
    told |= _splits(session, train)
    if not task.data.test_split:
        told["test"] = (
            f"none: results are those of {session.settings.run.dev_split}"
        )
    told |= task.data.notes(session.state.fitted)
    if devices := _devices(session):
        told["devices"] = devices
    told |= {
        "network": f"{task.describe(network)}, {size:,} trainable parameters",
        "watch": f"tensorboard --logdir {session.run_dir / 'tensorboard'}",
    }
    return "\n".join(f"{name:<9} {text}" for name, text in told.items())


def _devices(session):
    """Returns in words who trains, and who did before; "" where one did."""
    state, now = session.state, str(session.workers)
    if not state.epoch or state.devices == now:
        return now
    before = state.devices or "one device"
    return f"{now or 'one device'}; {before} until epoch {state.epoch}"


def about(session, train):
    """Returns in Markdown what is trained, and on what."""
    told = {"network": session.task.describe(session.network)}
    told |= _splits(session, train)
    return "\n".join(f"- {name}: {text}" for name, text in told.items())


def _splits(session, train):
    """Returns how many of what each split has, in words."""
    settings = session.settings
    splits = {
        settings.run.train_split: train,
        settings.run.dev_split: session.dev,
    }
    return {
        split: ", ".join(f"{n} {name}" for name, n in examples.counts.items())
        for split, examples in splits.items()
    }


def results(last, best):
    """Returns what `metrics.json` tells of a run beside its test metrics.

    Args:
        last: `RunState` of the last epoch.
        best: that of the best one.
    """
    return {
        "best_epoch": best.epoch,
        "epochs": last.epoch,
        "train_seconds": round(sum(row["seconds"] for row in last.history), 1),
        "dev": best.dev,
        "command": startup.typed(),
        "versions": {
            **{one.__name__: one.__version__ for one in (tbnets, tf, keras)},
            "python": platform.python_version(),
            "kernels": startup.kernels(),
        },
    }


def out_of_patience(settings, state):
    """Tells whether `patience` epochs have passed without a better one."""
    waited = state.epoch - state.best_epoch
    return bool(settings.patience) and waited >= settings.patience


def finished(settings, folder):
    """Tells in words that a run has nothing left to do; "" where it has.

    Args:
        settings: the settings it would go on with.
        folder: the folder of the run.
    """
    last = checkpoint_path(folder, "last")
    report = folder / "metrics.json"
    if not last.exists() or not report.exists():
        return ""
    state = checkpoints.read_progress(last)
    left = settings.epochs - state.epoch
    if left > 0 and not out_of_patience(settings, state):
        return ""
    if _reported_epochs(report) != state.epoch:
        return ""
    if settings.run.export and next_version(folder / SAVED_MODEL) == 1:
        return ""
    more = f"Set --epochs above {state.epoch} to train longer"
    if settings.training is None:
        more = f"--model={settings.run.model} has nothing to train longer"
    elif left > 0:
        more = "Raise --patience, or set it to 0, to train longer"
    elif settings.optimizer.schedule == "cosine":
        more = (
            "Its cosine schedule ends there: to train longer, start a new "
            "--run_dir with more --epochs"
        )
    return (
        f"{folder} is finished after epoch {state.epoch}, with its results in "
        f"{report}. {more}; tools/evaluate.py and tools/export.py work on it."
    )


def _reported_epochs(report):
    """Returns the epochs of a `metrics.json`; None of one that is damaged."""
    try:
        return CheckedFile(report).json()["epochs"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
