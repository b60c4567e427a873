"""Trains a network, and evaluates, saves and reports every epoch."""

import dataclasses
import datetime
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
import tqdm

from tbnets.data.batches import refuse_broken_images
from tbnets.evaluation.tables import headline
from tbnets.progress import progress_bar
from tbnets.startup import no_accelerator, raise_if_interrupted
from tbnets.training import checkpoints, summary
from tbnets.training.board import Board
from tbnets.training.checkpoints import checkpoint_path
from tbnets.training.distribution import LOST, Workers

WITHOUT_ESTIMATE = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
"""Format of a bar without the remaining time."""
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
    """A progress bar that shows the time remaining in the epoch.

    The first epoch of a process has no estimate of the time, because its first
    step also builds the graph.
    """

    def __init__(self, title, steps, is_first=False, compiles=False):
        super().__init__()
        form = {"bar_format": WITHOUT_ESTIMATE} if is_first else {}
        self.bar = progress_bar(steps, title, "batch", **form)
        if compiles:
            self.bar.set_postfix_str("compiling (about 15 s)")

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
            row, scores = _train_epoch(session, train), None
            if session.measures:
                scores = session.task.scores(session.network, session.dev)
                row |= _measure_epoch(scores)
            row["seconds"] = time.perf_counter() - start
            _save_epoch(session, session.workers.from_chief(row))
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
    is_first = getattr(network, "train_function", None) is None
    compiles = is_first and (network.jit_compile or not no_accelerator())
    bar = title, steps, is_first, compiles
    options = {"initial_epoch": epoch, "epochs": epoch + 1, "verbose": 0}
    is_chief = session.workers.is_chief
    try:
        history = network.fit(
            session.workers.share(batches),
            steps_per_epoch=steps,
            shuffle=False,
            callbacks=[ProgressBar(*bar)] if is_chief else [],
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
