"""Writes a small data set, and parses the flags of fast runs."""

import contextlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.cli import run_line, train
from tbnets.data.open import Data
from tbnets.tasks.settings.flag import CommandLine, flags_of
from tbnets.tasks.settings.settings import ALL
from tbnets.text.vocabulary import PaddedRows
from tbnets.training import checkpoints

WORDS = ("dog", "cat", "red", "blue", "runs", "sits")
SPLITS = {"train": 12, "dev": 6, "test": 6}


def write_precomputed(folder, captions_per_image=2, seed=0):
    """Writes VSE++ style files; captions describe the image features."""
    generator = np.random.default_rng(seed)
    table = generator.normal(size=(len(WORDS), 8)).astype("float32")
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in SPLITS.items():
        picks = generator.integers(0, len(WORDS), (size, 3))
        np.save(folder / f"{split}_ims.npy", table[picks].sum(axis=1))
        ids = [f"{split}{i}.jpg" for i in range(size)]
        (folder / f"{split}_ids.txt").write_text("\n".join(ids) + "\n")
        lines = [
            " ".join(WORDS[j] for j in generator.permutation(pick))
            for pick in picks
            for _ in range(captions_per_image)
        ]
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
    return folder


def arguments(folder, run_dir, **changes):
    """Returns the flags of a run on the data of `write_precomputed`."""
    values = {
        "data_root": folder,
        "captions": ".",
        "image_features": "{split}_ims.npy",
        "run_dir": run_dir,
        "text_encoder": "mean",
        "text_to_text_weight": 0,
        "word_dim": 6,
        "image_units": "8,4",
        "text_units": "8,4",
        "images_per_batch": 5,
        "epochs": 4,
        "learning_rate": 0.01,
        "export": False,
        **changes,
    }
    return {name: str(value) for name, value in values.items()}


def settings(folder, run_dir, **changes):
    """Returns the `Settings` for the flags that `arguments` returns."""
    return parsed(arguments(folder, run_dir, **changes))


def parsed(values):
    """Returns the `Settings` for a dict from flag names to values."""
    return parse(*[f"--{name}={value}" for name, value in values.items()])


def typed(*line):
    """Returns the `CommandLine` of the `train` command."""
    return CommandLine(line, [*ALL.values(), *flags_of(train.Options)])


def parse(*line):
    """Returns the `Settings` that the `train` command parses."""
    return run_line.resolve(typed(*line)).settings


def unread(*line):
    """Raises an error for unused flags, like the `train` command."""
    return run_line.check_read(typed(*line), parse(*line))


def split_of(settings, name, **options):
    """Returns the `SplitData` of a split, as a run opens it."""
    return Data(settings.sources(), **options).split(name)


@contextlib.contextmanager
def copied_after(epoch, run_dir, target):
    """Copies the folder of a run after an epoch, as if the run was killed."""
    save = checkpoints.save_checkpoint

    def noted(path, model, optimizer, state):
        save(path, model, optimizer, state)
        if path.stem == "last" and state.epoch == epoch:
            shutil.copytree(run_dir, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "save_checkpoint", noted)
        yield


def token_rows(padded):
    """Returns the `PaddedRows` of a matrix of ids, padded with 0."""
    padded = np.asarray(padded, np.int32)
    return PaddedRows(padded[padded != 0], (padded != 0).sum(axis=1))


def summaries(folder):
    """Yields each `(step, value)` of the event files in a folder."""
    for path in sorted(folder.glob("events.out.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                yield event.step, value


def events(folder):
    """Returns a dict from the tags of the event files to their steps."""
    found = {}
    for step, value in summaries(folder):
        found.setdefault(value.tag, set()).add(step)
    return found
