"""Describes a run to users: network, data, results and warnings."""

import platform

import keras
import numpy as np
import tensorflow as tf

import tbnets
from tbnets import startup
from tbnets.evaluation.tables import recall_cutoffs
from tbnets.files import CheckedFile
from tbnets.serving.export import next_version
from tbnets.training import checkpoints
from tbnets.training.checkpoints import SAVED_MODEL, checkpoint_path

COLLAPSED_COSINE = 0.95
PLATEAU_ACTIVE = 0.99
PLATEAU_TOLERANCE = 0.05
PLATEAU_EPOCHS = 3
# Metric -> (its value for a network that only guesses, advice).
GUESSED = {
    "train/pair_accuracy": (
        0.52,
        "the network classifies pairs no better than chance. Train for more "
        "epochs, change --learning_rate or lower --num_candidates",
    ),
    "train/ranked_first": (
        0.0,
        "no matching pair scores higher than the wrong pairs, because all "
        "scores are equal. Try a lower --learning_rate",
    ),
}


def embedding_health(embeddings):
    """Measures how evenly unit vectors `[n, dim]` fill their space.

    Returns a dict. `mean_cosine` is the mean cosine similarity over all pairs
    of distinct rows: 0 if the vectors are evenly spread, 1 if they are all
    equal. `dimension_spread` is sqrt(dim) times the mean standard deviation of
    a dimension: 1 if all dimensions are used evenly, 0 for equal vectors.
    """
    vectors = np.asarray(embeddings, np.float64)
    n, dim = vectors.shape
    if n < 2:
        return {"mean_cosine": 0.0, "dimension_spread": 0.0}
    # sum over i != j of <v_i, v_j> = |sum v|^2 - sum |v_i|^2
    total = vectors.sum(axis=0)
    pairs = total @ total - np.einsum("ij,ij->", vectors, vectors)
    spread = vectors.std(axis=0).mean() * np.sqrt(dim)
    return {
        "mean_cosine": float(pairs / (n * (n - 1))),
        "dimension_spread": float(spread),
    }


def diagnose(history, margin, reduction):
    """Returns a warning if training has collapsed, else None.

    `history` has a dict of scalars for each epoch. `margin` is None if the loss
    has no margin. A loss equal to the margin indicates a collapse only if
    `reduction` is a mean and the dev split is ranked by chance. Otherwise, the
    hardest negatives may only be as close as the positives, which gives the
    same mean over the hinges above 0. For a network that scores pairs, only
    the comparison with chance is used.
    """
    logs = history[-1]
    for key, (guessing, advice) in GUESSED.items():
        if key in logs:
            return None if logs[key] > guessing else advice
    cosines = [logs[key] for key in logs if key.endswith("/mean_cosine")]
    if max(cosines, default=0) > COLLAPSED_COSINE:
        hinge_advice = "--negatives=all, more --num_negatives, or "
        hinges = "" if margin is None else hinge_advice
        return (
            "the embeddings have collapsed, because their mean pairwise cosine "
            f"is above {COLLAPSED_COSINE}. Try {hinges}a lower --learning_rate"
        )
    recent = history[-PLATEAU_EPOCHS:]
    has_plateau = margin is not None and reduction != "sum"
    if not has_plateau or len(recent) < PLATEAU_EPOCHS:
        return None
    at_margin = all(_is_at_margin(row, margin) for row in recent)
    if not at_margin or _beats_chance(history):
        return None
    return (
        f"the loss remains at the margin plateau ({margin:g}) and the dev "
        "split is ranked by chance. Try a lower --learning_rate, or start "
        "with --negatives=all"
    )


def _is_at_margin(logs, margin):
    terms = ("image_to_text", "text_to_image")
    losses = [logs.get(f"train/{term}_loss") for term in terms]
    active = [logs.get(f"train/{term}_active", 0.0) for term in terms]
    if None in losses or min(active) < PLATEAU_ACTIVE:
        return False
    return all(abs(x - margin) < PLATEAU_TOLERANCE * margin for x in losses)


def _beats_chance(history):
    """Returns whether a recent epoch beats chance or, for phrases, epoch 1."""
    recent = history[-PLATEAU_EPOCHS:]
    images = history[0].get("dev/image_to_text/num_queries")
    if not images:
        name = "dev/phrase_to_region/recall_at_1"
        first, *last = (row.get(name, 0) for row in [history[0], *recent])
        return max(last) > first
    cutoffs = recall_cutoffs(history[0])
    chance = 200 * sum(min(1, k / images) for k in cutoffs)
    least = min(1.5 * chance, (chance + 200 * len(cutoffs)) / 2)
    return max(row["dev/recall_sum"] for row in recent) > least


def describe_run(session, train):
    """Describes the run in a few lines, before training."""
    task, network = session.task, session.network
    size = sum(int(np.prod(v.shape)) for v in network.trainable_variables)
    lines = {"run": str(session.run_dir)}
    if session.state.epoch:
        lines["run"] += f", continued after epoch {session.state.epoch}"
    run = session.settings.run
    splits = {run.train_split: train, run.dev_split: session.dev}
    for split, examples in splits.items():
        counts = examples.counts.items()
        lines[split] = ", ".join(f"{n} {name}" for name, n in counts)
    if not task.test_split:
        lines["test"] = f"none; results are for the {run.dev_split} split"
    lines |= task.notes(session.state.fitted)
    if devices := _devices(session):
        lines["devices"] = devices
    if tf.config.list_physical_devices("GPU"):
        lines["GPU"] = _gpu(session.settings)
    lines |= {
        "network": f"{task.describe(network)}, {size:,} trainable parameters",
        "watch": f"tensorboard --logdir {session.run_dir / 'tensorboard'}",
    }
    return "\n".join(f"{name:<9} {text}" for name, text in lines.items())


def _gpu(settings):
    text = startup.describe_device()
    if settings.training and not settings.training.tensor_float_32:
        text += "; --tensor_float_32 makes products faster but less exact"
    return text


def _devices(session):
    state, now = session.state, str(session.workers)
    if not state.epoch or state.devices == now:
        return now
    before = state.devices or "one device"
    return f"{now or 'one device'}; {before} until epoch {state.epoch}"


def results(last, best):
    """Returns the entries of `metrics.json` except the test metrics.

    `last` and `best` are the `RunState`s of the last and the best epoch.
    """
    return {
        "best_epoch": best.epoch,
        "epochs": last.epoch,
        "train_seconds": round(sum(row["seconds"] for row in last.history), 1),
        "dev": best.dev,
        "command": startup.command_line(),
        "versions": {
            **{p.__name__: p.__version__ for p in (tbnets, tf, keras)},
            "python": platform.python_version(),
            "kernels": startup.kernels(),
        },
    }


def out_of_patience(settings, state):
    """Returns whether `patience` epochs passed without improvement."""
    waited = state.epoch - state.best_epoch
    return bool(settings.patience) and waited >= settings.patience


def finished(settings, folder):
    """Returns the reason why a run is finished, or "" if it is not."""
    last = checkpoint_path(folder, "last")
    report = folder / "metrics.json"
    if not last.exists() or not report.exists():
        return ""
    state = checkpoints.read_progress(last)
    remaining_epochs = settings.epochs - state.epoch
    if remaining_epochs > 0 and not out_of_patience(settings, state):
        return ""
    if _reported_epochs(report) != state.epoch:
        return ""
    if settings.run.export and next_version(folder / SAVED_MODEL) == 1:
        return ""
    return (
        f"{folder} is finished after epoch {state.epoch}; the results are in "
        f"{report}. To train longer, raise --epochs and --patience; with "
        "--schedule=cosine, start a new --run_dir."
    )


def _reported_epochs(report):
    try:
        return CheckedFile(report).json()["epochs"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
