"""Training a network: optimizer, schedule, epochs, checkpoints, resume."""

import dataclasses
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
import tqdm

from tbnets.data import batches
from tbnets.data.examples import Examples
from tbnets.data.examples import naming_broken_images
from tbnets.evaluation.retrieval import evaluate_retrieval
from tbnets.tasks.embedder import Embedder
from tbnets.training import checkpoints
from tbnets.training import health


def make_reproducible():
    """Makes equal steps give equal bits; call before TensorFlow computes.

    Deterministic kernels are not enough: a sum of three or more gradients
    (`AddN`) starts with whichever input's memory is free first, so its last
    bit depends on how operations overlap. With one thread between operations
    there is one order; within an operation all cores still work.
    """
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_inter_op_parallelism_threads(1)


@dataclasses.dataclass
class Session:
    """What the callbacks of one run share.

    Args:
        run_dir: folder of the run.
        network: the compiled `EmbeddingNetwork`.
        dev: `Examples` that choose the best epoch.
        state: the `RunState`, brought up to date after each epoch.
        settings: the run's settings.
    """

    run_dir: pathlib.Path
    network: object
    dev: Examples
    state: checkpoints.RunState
    settings: object

    def checkpoint(self, name):
        """Returns the path of the checkpoint `best` or `last`."""
        return self.run_dir / "checkpoints" / f"{name}.npz"


def out_of_patience(session):
    """Tells whether `patience` epochs have passed without a better one."""
    patience = session.settings.patience
    waited = session.state.epoch - session.state.best_epoch
    return bool(patience) and waited >= patience


def evaluate_examples(embedder, examples, memory_limit_mb):
    """Embeds and evaluates a split.

    Returns:
        (metrics, health): the dict of `evaluate_retrieval`, and the
        `embedding_health` of both sides as `images/...` and `texts/...`.
    """
    image_embeddings = embedder.images(examples)
    text_embeddings = embedder.texts(examples)
    metrics = evaluate_retrieval(
        image_embeddings,
        text_embeddings,
        examples.records.caption_to_image,
        memory_limit_mb=memory_limit_mb,
    )
    sides = {"images": image_embeddings, "texts": text_embeddings}
    found = {
        f"{side}/{key}": value
        for side, embeddings in sides.items()
        for key, value in health.embedding_health(embeddings).items()
    }
    return metrics, found


class EpochEnd(keras.callbacks.Callback):
    """After each epoch: evaluates, keeps the best, saves, stops early."""

    def __init__(self, session):
        super().__init__()
        self.session = session
        self.embedder = Embedder(session.network, session.settings.image_size)
        self.started = None

    def on_epoch_begin(self, epoch, logs=None):
        """Starts the epoch's clock."""
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Evaluates on the dev split and saves what follows from it."""
        session, state = self.session, self.session.state
        row = {f"train/{key}": float(value) for key, value in logs.items()}
        metrics, found = evaluate_examples(
            self.embedder, session.dev, session.settings.evaluate_memory
        )
        row |= {f"dev/{key}": value for key, value in metrics.items()}
        row |= {f"health/{key}": value for key, value in found.items()}
        row["seconds"] = time.perf_counter() - self.started
        state.epoch = epoch + 1
        state.history.append(row)
        best = state.best_metric
        better = best is None or metrics["recall_sum"] > best
        if better:
            state.best_metric = metrics["recall_sum"]
            state.best_epoch = state.epoch
            self._save("best")
        self._save("last")
        if out_of_patience(session):
            session.network.stop_training = True

    def _save(self, name):
        session = self.session
        checkpoints.save_checkpoint(
            session.checkpoint(name),
            session.network,
            session.network.optimizer,
            session.state,
        )


class TensorBoardLog(keras.callbacks.Callback):
    """Writes each epoch's scalars for TensorBoard, grouped by their prefix."""

    def __init__(self, session):
        super().__init__()
        self.session = session
        self.writer = tf.summary.create_file_writer(
            str(session.run_dir / "tensorboard")
        )

    def on_epoch_end(self, epoch, logs=None):
        """Writes the newest row of the history."""
        with self.writer.as_default(step=epoch + 1):
            for key, value in self.session.state.history[-1].items():
                tf.summary.scalar(key, value)
        self.writer.flush()

    def on_train_end(self, logs=None):
        """Closes the event file."""
        self.writer.close()


class ProgressLines(keras.callbacks.Callback):
    """A bar with time left while an epoch runs, then a line of its results.

    Args:
        session: the `Session`.
        steps_per_epoch: batches an epoch.
    """

    def __init__(self, session, steps_per_epoch):
        super().__init__()
        self.session = session
        self.steps_per_epoch = steps_per_epoch
        self.bar = None
        self.advice = None

    def on_epoch_begin(self, epoch, logs=None):
        """Opens the bar."""
        self.bar = tqdm.tqdm(
            total=self.steps_per_epoch,
            desc=f"epoch {epoch + 1}/{self.session.settings.epochs}",
            leave=False,
            disable=None,
            unit="batch",
        )

    def on_train_batch_end(self, batch, logs=None):
        """Moves the bar on."""
        self.bar.update()
        if not self.bar.disable:
            self.bar.set_postfix(loss=f"{float(logs['total_loss']):.4f}")

    def on_epoch_end(self, epoch, logs=None):
        """Closes the bar and prints the epoch's line."""
        self.bar.close()
        session, state = self.session, self.session.state
        row = state.history[-1]
        left = (session.settings.epochs - state.epoch) * np.mean(
            [past["seconds"] for past in state.history[-5:]]
        )
        mark = "*" if state.best_epoch == state.epoch else " "
        tqdm.tqdm.write(
            f"epoch {state.epoch:>3}/{session.settings.epochs}"
            f"  loss {row['train/total_loss']:.4f}"
            f"  dev R@1 {100 * row['dev/image_to_text/recall_at_1']:5.1f}"
            f" {100 * row['dev/text_to_image/recall_at_1']:5.1f}"
            f"  recall sum {row['dev/recall_sum']:6.1f}{mark}"
            f"  {row['seconds']:5.1f} s"
            f"  left {format_seconds(left)}"
        )
        advice = health.diagnose(
            row, session.settings.margin, session.settings.reduction
        )
        if advice and advice != self.advice:
            tqdm.tqdm.write(f"warning: {advice}.")
        self.advice = advice


def format_seconds(seconds):
    """Returns seconds as `m:ss` or `h:mm:ss`."""
    minutes, seconds = divmod(int(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"


def fit(session, train):
    """Trains from the epoch `session.state` stands at to the last one.

    A run that early stopping had ended is not trained further.

    Args:
        session: a `Session` whose network is compiled and, in a resumed
            run, restored.
        train: `Examples` to learn from.

    Raises:
        ValueError: an image of the training split does not decode; the
            message names it.
        OSError: a checkpoint can not be written; the former one survives.
    """
    settings, state = session.settings, session.state
    if out_of_patience(session):
        return
    steps = batches.num_batches(train.records, settings.images_per_batch)
    dataset = batches.training_batches(
        train,
        settings.images_per_batch,
        settings.captions_per_image,
        settings.seed,
        first_epoch=state.epoch,
        image_size=settings.image_size,
    )
    with naming_broken_images(train.images, settings.image_size):
        session.network.fit(
            dataset,
            epochs=settings.epochs,
            initial_epoch=state.epoch,
            steps_per_epoch=steps,
            shuffle=False,
            verbose=0,
            callbacks=[
                EpochEnd(session),
                TensorBoardLog(session),
                ProgressLines(session, steps),
            ],
        )
