"""Trains a network, and evaluates, saves and reports every epoch."""

import dataclasses
import datetime
import io
import operator
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
import tqdm
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.projector import projector_config_pb2

from tbnets.data.batches import refuse_broken_images
from tbnets.evaluation.tables import headline
from tbnets.files import write_atomically
from tbnets.progress import progress_bar
from tbnets.startup import delayed_interrupt, raise_if_interrupted
from tbnets.training import checkpoints, summary
from tbnets.training.checkpoints import checkpoint_path
from tbnets.training.distribution import LOST, Workers

READ_BY_ALL = tf.VariableSynchronization.ON_READ


def make_reproducible():
    """Makes repeated runs bit-identical if called before any TensorFlow op."""
    tf.config.experimental.enable_op_determinism()
    # A sum of three or more gradients (`AddN`) also depends on the order in
    # which its inputs are computed. A single inter-op thread fixes this order.
    tf.config.threading.set_inter_op_parallelism_threads(1)


@dataclasses.dataclass
class Session:
    """A run in memory. Only training needs `dev`, `batches` and `lock`.

    Args:
        run_dir: folder of the run, locked by `lock`.
        task: the `tasks.task.Task` of the run.
        network: the built and compiled model.
        state: the `RunState`, updated after each epoch.
        dev: examples on which the best epoch is chosen.
        workers: the `Workers`.
    """

    run_dir: pathlib.Path
    task: object
    network: object
    state: checkpoints.RunState
    dev: object = None
    batches: object = None
    lock: object = None
    workers: Workers = dataclasses.field(default_factory=Workers)

    @property
    def settings(self):
        """The run's settings."""
        return self.task.settings

    @property
    def measures(self):
        """Whether this worker evaluates the dev split.

        The chief does. Other workers must take part if reading a variable
        requires all workers.
        """
        # Keras 2 keeps batch normalisation statistics per replica and averages
        # them when they are read.
        return self.workers.is_chief or any(
            getattr(variable, "synchronization", None) == READ_BY_ALL
            for variable in self.network.weights
        )

    def board(self):
        """Returns the run's `Board`, a context manager."""
        metric, is_chief = self.task.best_metric, self.workers.is_chief
        return Board(self.run_dir, metric, is_chief)

    def checkpoint(self, name):
        """Returns the path of the `best` or `last` checkpoint."""
        return checkpoint_path(self.run_dir, name)


class ProgressBar(keras.callbacks.Callback):
    """The chief's progress bar, with the time remaining in the epoch."""

    def __init__(self, title, steps, is_chief):
        super().__init__()
        self.bar = tqdm.tqdm(disable=True)
        if is_chief:
            self.bar = progress_bar(steps, title, "batch")

    def on_train_batch_end(self, batch, logs=None):
        """Advances the progress bar; stops training after Ctrl-C."""
        raise_if_interrupted()
        self.bar.update()
        if not self.bar.disable:
            self.bar.set_postfix(loss=f"{float(logs['loss']):.4f}")

    def on_train_end(self, logs=None):
        """Removes the bar."""
        self.bar.close()


def fit(session, train):
    """Trains until the last epoch, or until early stopping ends the run.

    `train` are the examples to train on. The network of a resumed run must
    already be restored. If a checkpoint cannot be written, an OSError is
    raised, and the previous checkpoint is kept.
    """
    state, settings, advice = session.state, session.settings, None
    started_at = state.epoch
    with session.board() as board:
        board.add_settings(settings)
        if settings.run.from_ and not state.epoch:
            _start_with_epoch_0(session, board)
        while state.epoch < settings.epochs:
            if summary.out_of_patience(settings, state):
                break
            start = time.perf_counter()
            with delayed_interrupt():
                row, scores = _train_epoch(session, train), None
            if session.measures:
                scores = session.task.scores(session.network, session.dev)
                row |= _measure_epoch(scores)
            row["seconds"] = time.perf_counter() - start
            row = session.workers.from_chief(row)
            with delayed_interrupt():
                _save_epoch(session, row)
                if session.workers.is_chief:
                    _show_epoch(session, board, scores)
            tqdm.tqdm.write(_epoch_line(session, started_at))
            before = advice
            advice = summary.diagnose(state.history, *_hinges_of(settings.loss))
            if advice and advice != before:
                tqdm.tqdm.write(f"warning: {advice}.")
        if settings.run.from_ and not state.best_epoch:
            tqdm.tqdm.write(
                "note: no epoch is better on the dev split than the model "
                f"before training, --from={settings.run.from_}. Its weights "
                "remain the best. Try a lower --learning_rate or more data."
            )


def _start_with_epoch_0(session, board):
    """Measures the model of --from, the first candidate for the best epoch."""
    state, metric = session.state, session.task.best_metric
    row, scores = {}, None
    if session.measures:
        scores = session.task.scores(session.network, session.dev)
        row = _measure_epoch(scores)
    state.before = session.workers.from_chief(row)
    state.best_metric = state.before[f"dev/{metric}"]
    if session.measures:
        _write_checkpoint(session, "best")
    if session.workers.is_chief:
        _show_best(session, board, scores)
        board.flush()
    tqdm.tqdm.write(
        f"epoch   0/{session.settings.epochs}  before       "
        f"dev {headline(state.dev, metric)}*"
    )


def _hinges_of(loss):
    has_hinges = loss and loss.is_triplet_loss
    return (loss.margin, loss.reduction) if has_hinges else (None, None)


def _train_epoch(session, train):
    batches, epoch = session.batches, session.state.epoch
    session.task.start_epoch(session.network, train, epoch)
    batches.epoch = epoch
    network = session.network
    network.largest_batch = batches.largest
    steps = batches.num_batches
    title = f"epoch {epoch + 1}/{session.settings.epochs}"
    options = {"initial_epoch": epoch, "epochs": epoch + 1, "verbose": 0}
    try:
        history = network.fit(
            session.workers.share(batches),
            steps_per_epoch=steps,
            shuffle=False,
            callbacks=[ProgressBar(title, steps, session.workers.is_chief)],
            **options,
        ).history
    except LOST:
        raise
    except tf.errors.OpError:
        refuse_broken_images(getattr(train, "images", ()))
        raise
    # The names of terms also end in `loss`.
    history["total_loss"] = history.pop("loss")
    return {f"train/{key}": float(means[-1]) for key, means in history.items()}


def _measure_epoch(scores):
    groups = {"dev": scores.metrics()}
    for side, embeddings in scores.sides.items():
        groups[f"health/{side}"] = summary.embedding_health(embeddings)
    return {
        f"{group}/{key}": value
        for group, values in groups.items()
        for key, value in values.items()
    }


def _show_epoch(session, board, scores):
    state = session.state
    board.add_epoch(state.history[-1], state.epoch)
    if state.best_epoch == state.epoch:
        _show_best(session, board, scores)
    board.flush()


def _show_best(session, board, scores):
    state = session.state
    board.add_best("dev", state.best_metric, state.epoch)
    about = f"{scores.about_pictures} Split: {session.settings.run.dev_split}."
    board.add_pictures(scores.pictures(), state.epoch, about)


def _save_epoch(session, row):
    state = session.state
    state.epoch += 1
    state.history.append(row)
    state.held = session.task.held
    state.devices = str(session.workers)
    metric = row[f"dev/{session.task.best_metric}"]
    names = ["last"]
    if state.best_metric is None or metric > state.best_metric:
        state.best_metric, state.best_epoch = metric, state.epoch
        names = ["best", "last"]
    if not session.measures:
        return
    for name in names:
        _write_checkpoint(session, name)


def _write_checkpoint(session, name):
    # All workers read the variables; only the chief writes the file.
    path = session.checkpoint(name) if session.workers.is_chief else None
    network, state = session.network, session.state
    optimizer = network.optimizer if state.epoch else None
    checkpoints.save_checkpoint(path, network, optimizer, state)


def _epoch_line(session, started_at):
    settings, state, task = session.settings, session.state, session.task
    row, left = state.history[-1], ""
    # The first epoch of a process also builds the graphs.
    if recent := [past["seconds"] for past in state.history[started_at + 1 :]]:
        seconds = (settings.epochs - state.epoch) * np.mean(recent[-5:])
        left = f"  left {datetime.timedelta(seconds=round(seconds))}"
    mark = "*" if state.best_epoch == state.epoch else " "
    return (
        f"epoch {state.epoch:>3}/{settings.epochs}"
        f"  loss {row['train/total_loss']:.4f}"
        f"  dev {headline(state.dev, task.best_metric)}{mark}"
        f"  {row['seconds']:5.1f} s{left}"
    )


# Charts and pictures for TensorBoard, which sorts groups of charts by name and
# opens the first two:
#
#     1_overview   the metric of the best epoch on dev, the loss, and health
#     2_answers    pictures of dev queries for each new best epoch
#     3_dev        other metrics of the dev split
#     4_train      other means over an epoch
#     5_time       seconds
#     6_best       in the run `best`: the metric of the best epoch


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
            values = {
                name: ",".join(map(str, x)) if isinstance(x, list) else x
                for name, x in settings.without_places().items()
            }
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
