"""Writes a run's charts and pictures for TensorBoard.

TensorBoard sorts groups of charts by name and opens the first two:

    1_overview      the metric of the best epoch on dev, the loss, and health
    2_answers       pictures of dev queries for each new best epoch
    3_dev           other metrics of the dev split
    4_train         other means over an epoch
    5_time          seconds
    6_best          in the run `best`: the metric of the best epoch
"""

import io
import operator
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.projector import projector_config_pb2

from tbnets.files import write_atomically


def write_points(folder, name, points):
    """Writes `visualization.plots.Points` for TensorBoard's projector.

    `folder` contains the event files, and `name` is the name of the points.
    """
    folder = pathlib.Path(folder)
    config = projector_config_pb2.ProjectorConfig()
    embedding = config.embeddings.add(
        tensor_name=name,
        tensor_shape=points.vectors.shape,
        tensor_path="points_vectors.tsv",
        metadata_path="points_metadata.tsv",
    )
    vectors = io.BytesIO()
    np.savetxt(vectors, points.vectors, fmt="%.5g", delimiter="\t")
    contents = {
        embedding.tensor_path: vectors.getvalue(),
        embedding.metadata_path: metadata(points.columns).encode(),
    }
    if points.thumbnails is not None:
        embedding.sprite.image_path = "points_sprite.png"
        side = points.thumbnails.shape[1]
        embedding.sprite.single_image_dim.extend([side, side])
        picture = io.BytesIO()
        Image.fromarray(sprite(points.thumbnails)).save(picture, "PNG")
        contents[embedding.sprite.image_path] = picture.getvalue()
    config_text = text_format.MessageToString(config)
    contents["projector_config.pbtxt"] = config_text.encode()
    for path, content in contents.items():
        write_atomically(folder / path, operator.methodcaller("write", content))


def metadata(columns):
    """Formats a dict of string columns as the projector's metadata table.

    Tabs and line breaks become spaces.
    """
    rows = zip(*columns.values())
    lines = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    # The projector requires a single column without a head.
    head = [list(columns)] if len(columns) > 1 else []
    return "".join("\t".join(line) + "\n" for line in [*head, *lines])


def sprite(thumbnails):
    """Arranges thumbnails `[n, side, side, 3]` in a square, row by row.

    The square `[height, height, 3]` is white after the last thumbnail.
    """
    count, side = thumbnails.shape[:2]
    across = int(np.ceil(np.sqrt(count)))
    tiles = np.full((across**2, side, side, 3), 255, np.uint8)
    tiles[:count] = thumbnails
    grid = tiles.reshape(across, across, side, side, 3).swapaxes(1, 2)
    return grid.reshape(across * side, across * side, 3)


FOLDER = "tensorboard"
BEST = "best"
OVERVIEW, ANSWERS = "1_overview", "2_answers"
GROUPS = {"dev": "3_dev", "train": "4_train"}
TIME, BEST_EPOCH = "5_time", "6_best"

DESCRIPTIONS = {
    "recall_sum": "Sum of recall at 1, 5 and 10 in both directions, in per "
    "cent: 0 to 600.",
    "mean_recall": "Mean of recall at 1, 5 and 10 in both directions.",
    "recall_at_1": "Fraction of queries with a correct answer ranked first.",
    "recall_at_5": "Fraction of queries with a correct answer in the top 5.",
    "recall_at_10": "Fraction of queries with a correct answer in the top 10.",
    "upper_bound": "Fraction of phrases with a correct region proposed.",
    "median_rank": "Median rank of the best correct answer; 1 is perfect.",
    "mean_rank": "Mean rank of the best correct answer; 1 is perfect.",
    "tie_rate": "Fraction of queries whose correct answer ties with a wrong "
    "answer, which counts as a miss.",
    "total_loss": "The minimised loss: the weighted sum of the terms.",
    "loss": "A term of the loss, before its weight.",
    "active": "Fraction of triplets with a loss above 0. For a loss without "
    "triplets, fraction of anchors whose closest candidate does not match.",
    "positive_loss": "Loss of matching pairs; log 2 = 0.69 for guessing.",
    "negative_loss": "Loss of non-matching pairs; log 2 = 0.69 for guessing.",
    "pair_accuracy": "Fraction of correctly classified pairs; half match.",
    "ranked_first": "Fraction of matching pairs that score higher than all "
    "non-matching pairs they are compared with.",
    "learning_rate": "Mean learning rate over the steps of the epoch.",
    "gradient_norm": "Norm of the whole gradient, before clipping.",
    "mean_cosine": "Mean cosine over pairs of embeddings of one side: 0 if "
    "spread evenly, 1 if collapsed to a point.",
    "dimension_spread": "Evenness of the use of dimensions: 1 even, 0 "
    "collapsed.",
    "seconds": "Seconds per epoch, for steps and evaluation.",
}


class Board:
    """A context manager that writes the event files of a run.

    `metric` is the dev metric that chooses the best epoch. Only the chief of
    several workers, for which `is_chief` is true, writes files.
    """

    def __init__(self, run_dir, metric, is_chief=True):
        self._run_dir = pathlib.Path(run_dir)
        self.folder = self._run_dir / FOLDER
        self._is_chief = is_chief
        self._metric = metric
        self._run, self._best = (
            tf.summary.create_file_writer(str(folder))
            if is_chief
            else tf.summary.create_noop_writer()
            for folder in (self.folder, self.folder / BEST)
        )
        self._overview = {
            f"dev/{metric}": f"1_dev_{metric}",
            "train/total_loss": "2_train_total_loss",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run.close()
        self._best.close()

    def tag(self, key):
        """Returns the chart name of a scalar."""
        group, _, name = key.partition("/")
        if key in self._overview:
            return f"{OVERVIEW}/{self._overview[key]}"
        if group == "health":
            return f"{OVERVIEW}/3_{name.replace('/', '_')}"
        return f"{GROUPS.get(group, group)}/{name}" if name else f"{TIME}/{key}"

    def add_settings(self, settings):
        """Writes the settings by which TensorBoard compares runs."""
        with self._best.as_default():
            # TensorBoard's table of settings shows every scalar of this run.
            # The folder as the id keeps runs with the same settings separate.
            values = settings.comparable()
            hparams.hparams(values, trial_id=str(self._run_dir))
        self.flush()

    def add_epoch(self, row, epoch):
        """Writes the scalars of an epoch."""
        with self._run.as_default():
            for key, value in row.items():
                _scalar(self.tag(key), value, epoch, key)

    def add_best(self, split, value, epoch):
        """Writes the best epoch's metric on a split."""
        with self._best.as_default():
            name = f"{BEST_EPOCH}/{split}_{self._metric}"
            _scalar(name, value, epoch, self._metric)

    def add_pictures(self, pictures, epoch, about):
        """Writes pictures, a dict from names to uint8 `[height, width, 3]`."""
        with self._run.as_default():
            for name, pixels in pictures.items():
                tag, rows = f"{ANSWERS}/{name}", np.asarray(pixels)[None]
                tf.summary.image(tag, rows, epoch, description=about)

    def add_points(self, name, points):
        """Writes `Points` for the projector, unless they are None."""
        if self._is_chief and points is not None and len(points.vectors):
            write_points(self.folder, name, points)

    def flush(self):
        """Flushes all events to disk."""
        self._run.flush()
        self._best.flush()


def _scalar(tag, value, step, key):
    name = key.rpartition("/")[2]
    ending = name.rpartition("_")[2]
    text = DESCRIPTIONS.get(name) or DESCRIPTIONS.get(ending, "")
    tf.summary.scalar(tag, value, step=step, description=text)
