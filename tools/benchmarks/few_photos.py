"""Measures training on a few photos with the usual flags.

For each number of photos and each seed, trains on a random sample of the
training photos, and prints the metrics of all dev and test photos.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from tbnets.data.captions import read_captions

SIZES = 80, 240, 1000
TRAIN = pathlib.Path(__file__).parent.parent / "train.py"


def run(options):
    """Prints a row per sample: recall sums, R@10, best epoch and seconds."""
    splits = {
        name: read_captions(options.captions, name)
        for name in ("train", "dev", "test")
    }
    print("photos  seed    dev   test  text to image R@10  epoch  seconds")
    for size in options.num_images or SIZES:
        for seed in range(options.repeats or 3):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder)
                _write_sample(path / "captions.csv", splits, size, seed)
                start = time.monotonic()
                report = _train(path, options, seed)
            cells = (
                f"{size:6}  {seed:4}",
                f"{report['dev']['recall_sum']:5.1f}",
                f"{report['test']['recall_sum']:5.1f}",
                f"{100 * report['test']['text_to_image/recall_at_10']:18.1f}",
                f"{report['best_epoch']:5}",
                f"{time.monotonic() - start:7.0f}",
            )
            print("  ".join(cells), flush=True)


def _write_sample(path, splits, size, seed):
    """Writes the captions of `size` random training photos, dev and test."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption", "split"])
        for split, records in splits.items():
            rows = np.arange(records.num_images)
            if split == "train":
                rows = np.random.default_rng(seed).permutation(rows)[:size]
            chosen = set(rows.tolist())
            for text, row in zip(records.captions, records.caption_to_image):
                if row in chosen:
                    writer.writerow([records.names[row], text, split])


def _train(folder, options, seed):
    """Trains a model in `folder`, and returns its metrics."""
    flags = {
        "images": os.path.abspath(options.images),
        "captions": folder / "captions.csv",
        "seed": seed,
        "run_dir": folder / "run",
    }
    line = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, TRAIN, *line, "--noexport"]
    # The progress and the error of the run appear on stderr.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "run/metrics.json").read_text())
