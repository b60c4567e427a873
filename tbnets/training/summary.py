"""What a run tells people: what is trained, on what, and what came of it."""

import platform

import keras
import numpy as np
import tensorflow as tf

import tbnets
from tbnets import startup


def describe(session, train):
    """Returns a few lines on what is about to be trained."""
    task, network = session.task, session.network
    size = sum(int(np.prod(v.shape)) for v in network.trainable_variables)
    lines = [f"run       {session.run_dir}"]
    if session.state.epoch:
        lines[0] += f", continued after epoch {session.state.epoch}"
    splits = {
        session.settings.train_split: train,
        session.settings.dev_split: session.dev,
    }
    for split, examples in splits.items():
        lines.append(f"{split:<9} {counted(examples)}")
    if not task.data.test_split:
        lines.append(
            f"test      none: results are those of {session.settings.dev_split}"
        )
    notes = task.data.notes(session.state.fitted).items()
    lines += [
        *(f"{name:<9} {text}" for name, text in notes),
        f"network   {task.describe(network)}, {size:,} trainable parameters",
        f"watch     tensorboard --logdir {session.run_dir / 'tensorboard'}",
    ]
    return "\n".join(lines)


def about(session, train):
    """Returns in Markdown what is trained, and on what."""
    settings, task = session.settings, session.task
    splits = {settings.train_split: train, settings.dev_split: session.dev}
    lines = [f"- network: {task.describe(session.network)}"]
    for split, examples in splits.items():
        lines.append(f"- {split}: {counted(examples)}")
    return "\n".join(lines)


def counted(examples):
    """Returns how many of what a split has, in words."""
    counts = examples.counts.items()
    return ", ".join(f"{count} {name}" for name, count in counts)


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
            "tbnets": tbnets.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
        },
    }
