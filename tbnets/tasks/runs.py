"""Starts, finishes, opens and exports a run, and writes its folder.

The `train` command calls these functions::

    folder = start(settings, resume)            # checks the flags and folder
    session, train = prepare(settings, folder)  # data, network, checkpoint
    loop.fit(session, train)
    finish(session)                             # test metrics, pictures
    export(session)                             # SavedModel

The folder of a run contains::

    RUN/settings.json        the flags, as numbers and strings
        run.flags            the flags as a flagfile
        vocabulary.txt       one word per line
        left_out.txt         images that the run skipped, with reasons
        training.lock        locked during training
        checkpoints/         best.npz and last.npz
        tensorboard/         event files, and points for the projector
        curves.png           plots of the training history
        examples.png         examples of the test split, if it has photos
        answers.png          results of example queries, if there are photos
        metrics.json         dev and test metrics of the best epoch
        saved_model/1/       the exported model

The network is rebuilt from a checkpoint. Only paths are read from
`settings.json`, because files may have moved.
"""

import contextlib
import os
import pathlib

from tbnets.errors import InputError
from tbnets.features.cache import FolderLock
from tbnets.features.photo_features import RANDOM
from tbnets.files import (
    can_be_written,
    is_partial,
    write_json,
    write_png,
    write_text,
)
from tbnets.serving.export import next_version, write_saved_model
from tbnets.tasks import registry
from tbnets.tasks.builders import build_network
from tbnets.tasks.settings import records
from tbnets.tasks.settings.records import SETTINGS_FILE
from tbnets.tasks.settings.settings import ALL, Settings
from tbnets.tasks.trained import open_trained
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints
from tbnets.training.checkpoints import SAVED_MODEL, checkpoint_path
from tbnets.training.distribution import Workers
from tbnets.training.loop import Session
from tbnets.training.optimizers import create_optimizer_variables
from tbnets.training.summary import results
from tbnets.visualization import montage, plots

LOCK = "training.lock"
"""Name of the file that a training process locks."""


def check_run_folder(run_dir, resume):
    """Checks the folder of a run, and returns its path.

    The folder must be new or empty, or contain a run, which `resume` requires.
    Files of a run that was killed before it wrote its settings are ignored.
    """
    if not run_dir:
        raise InputError("--run_dir", "be the path of a folder", "--run_dir=")
    folder = pathlib.Path(run_dir)
    signs = folder / SETTINGS_FILE, checkpoint_path(folder, "last")
    is_run = any(map(os.path.exists, signs))
    if resume and not is_run:
        received = f"--run_dir={folder}, which has no run"
        raise InputError("--resume", "be used with an existing run", received)
    foreign = []
    if folder.is_dir() and not is_run:
        names = sorted(path.name for path in folder.iterdir())
        foreign = [n for n in names if n != LOCK and not is_partial(n)]
    if foreign:
        expected = "be a new or empty folder, or a run folder"
        received = f"{folder}, which contains {', '.join(foreign[:3])}"
        raise InputError("--run_dir", expected, received)
    return folder


def check_untrained(folder):
    """Raises ValueError if the folder has a run with a finished epoch."""
    if checkpoint_path(folder, "last").exists():
        received = f"--run_dir={folder}, which has a run"
        advice = "Add --resume to continue it."
        raise InputError("--run_dir", "be a new folder", received, advice)


def lock_run(folder):
    """Creates a run's folder and locks it against other training processes.

    Other processes can still read and export the run. Returns the `FolderLock`,
    whose deletion releases the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FolderLock.take(folder, LOCK, "--run_dir")


def check_same_run(workers, settings: Settings, last):
    """Raises ValueError if a worker's flags or epoch differ from the chief's.

    `last` is the path of the worker's last checkpoint, which need not exist.
    """
    workers.check_same("the flags", settings.without_places())
    epoch = checkpoints.read_progress(last).epoch if last.exists() else 0
    workers.check_same("--run_dir", {"epochs": epoch})


CURVES, EXAMPLES = "curves.png", "examples.png"


def start(settings: Settings, resume):
    """Checks the flags and the folder of a run, and returns the folder.

    Does not write files. Raises ValueError if the folder is unusable, or flags
    of a resumed run have changed.
    """
    folder = check_run_folder(settings.run.run_dir, resume)
    if not can_be_written(folder):
        expected = "be a writable folder"
        raise InputError("--run_dir", expected, f"--run_dir={folder}")
    if not resume:
        check_untrained(folder)
    elif checkpoint_path(folder, "last").exists():
        records.check_resumable(record_before(folder), settings, folder)
    return folder


def record_before(run_dir):
    """Returns the recorded flag values of the run in a folder.

    Raises ValueError if the folder contains no run or the run is damaged.
    """
    folder = check_run_folder(run_dir, resume=True)
    last = checkpoint_path(folder, "last")
    if not last.exists():
        return records.read_record(folder)
    record = records.completed(checkpoints.read_progress(last).settings, last)
    with contextlib.suppress(InputError):  # `settings.json` is rewritten.
        record["started_in"] = records.read_record(folder)["started_in"]
    return record


def prepare(settings: Settings, folder, queries=(), workers=None):
    """Loads the data and builds the session for training.

    `folder`, which `start` has checked, is created after all other checks. It
    is locked as long as the session exists. `queries` are example queries for
    the exported model. If `workers` is None, only this process trains. Returns
    (session, train): a `Session`, restored from a checkpoint if there is one,
    and the training examples.
    """
    workers, saved, begun = workers or Workers(), None, None
    last = checkpoint_path(folder, "last")
    check_same_run(workers, settings, last)
    lock = lock_run(folder) if workers.is_chief and folder.is_dir() else None
    task = registry.open_task(settings)
    if last.exists():
        saved = checkpoints.read_checkpoint(last)
        before = records.completed(saved.state.settings, last)
        records.check_resumable(before, settings, last)
        task.resume(saved.state, last)
    elif settings.run.from_:
        begun = open_trained(settings.run.from_, settings.started_in)
        task.begin_with(begun)
    with workers.chief_first():
        task.make()
        task.check(queries)
        fitted = task.fit()
    train = task.load(settings.run.train_split, fitted)
    dev = task.load(settings.run.dev_split, fitted)
    batches = task.batches(train)
    with workers.scope():
        network = _build(task, fitted, saved)
        if begun:
            begun.put_into(network)
        task.compile(network, batches.num_batches)
    if lock is None and workers.is_chief:
        lock = lock_run(folder)
        check_untrained(folder)  # Another process may have trained meanwhile.
    state = checkpoints.RunState(settings=settings.values(), fitted=fitted)
    session = Session(folder, task, network, state, dev, batches, lock, workers)
    if saved:
        _continue(session, saved)
    elif begun is None:
        _adapt(network, train)
    with workers.chief_first():
        if workers.is_chief:
            if saved is None:
                session.checkpoint("best").unlink(missing_ok=True)
            records.write_settings(settings, folder)
            last.parent.mkdir(exist_ok=True)
            _write_fitted(fitted, folder)
        check_run_folder(folder, resume=True)  # Fails if a worker lacks it.
    return session, train


def _write_fitted(fitted, folder):
    if fitted.get("words"):
        Vocabulary(fitted["words"]).save(folder / "vocabulary.txt")
    if left_out := fitted.get("left_out"):
        lines = (f"{name}\t{why}\n" for name, why in left_out.items())
        write_text(folder / "left_out.txt", "".join(lines))


def _build(task, fitted, checkpoint):
    """Builds a network. Loads no weights file if there is a checkpoint."""
    settings = task.settings
    if checkpoint:
        settings = settings.replace(cnn_weights=RANDOM)
    return build_network(settings, fitted)


def _adapt(network, train):
    for name in ("image_encoder", "region_encoder"):
        layer = getattr(network, name, None)
        if getattr(layer, "needs_statistics", False):
            layer.adapt(train.samples(name))


def _continue(session, checkpoint):
    path, state = session.checkpoint("last"), checkpoint.state
    now, then = session.state.fitted.get("words"), state.fitted.get("words")
    if now != then:
        expected = "have the vocabulary with which the run was started"
        received = f"{len(now or [])} words; {path} has {len(then or [])}"
        raise InputError("--captions", expected, received)
    optimizer = session.network.optimizer
    with session.workers.scope():
        create_optimizer_variables(optimizer, session.network)
    checkpoints.put_into(checkpoint, path, session.network, optimizer)
    session.state = state
    session.state.settings = session.settings.values()


def finish(session):
    """Evaluates the best epoch on the test split and writes the reports.

    Returns the content of `metrics.json`. Afterwards, the session holds the
    weights and the state of the best epoch.
    """
    task, settings, folder = session.task, session.settings, session.run_dir
    last = session.state
    if len(last.history) > 1:
        start_and_best = last.before, last.best_epoch
        plots.draw_history(last.history, folder / CURVES, *start_and_best)
    path = session.checkpoint("best")
    saved = checkpoints.read_checkpoint(path)
    if session.workers.num_replicas > 1:  # One device is enough to evaluate.
        session.network = _build(task, last.fitted, saved)
    checkpoints.put_into(saved, path, session.network)
    session.state = best = saved.state
    report = results(last, best)
    test_split, examples = task.test_split, session.dev
    if test_split:
        examples = task.load(test_split, best.fitted)
    scores = task.scores(session.network, examples)
    if test_split:
        report["test"] = scores.metrics()
        report["test_split"] = {"name": test_split, **examples.counts}
    write_json(folder / "metrics.json", report)
    if pictures := scores.pictures():
        rows = montage.rows_of(pictures)
        sheet = montage.draw_sheet(rows, scores.about_pictures)
        write_png(folder / EXAMPLES, sheet, compress_level=1)
    with session.board() as board:
        if "test" in report:
            metric = report["test"][task.best_metric]
            board.add_best("test", metric, best.epoch)
        split = test_split or settings.run.dev_split
        board.add_points(split, scores.points())
    return report


def open_run(run_dir, checkpoint="best", *, data_root=None, adjust=None):
    """Rebuilds the network of a run with the weights of a checkpoint.

    Returns a `Session` whose `dev` is None.

    Args:
        run_dir: folder made by `tbnets train`.
        checkpoint: `best` or `last`.
        data_root: base folder of relative data paths. If None, TBNETS_DATA or
            the run's settings name the folder.
        adjust: optional function from the run's settings to changed settings.
    """
    places = records.read_record(run_dir)
    path = checkpoint_path(run_dir, checkpoint)
    saved = checkpoints.read_checkpoint(path)
    state = saved.state
    record = records.completed(state.settings, path)
    names = {name for name, flag in ALL.items() if flag.is_place}
    record |= {name: places[name] for name in names | {"started_in"}}
    if data_root:
        record["data_root"] = os.path.abspath(data_root)
    with _naming_checkpoint(path):
        settings = registry.settings_of(record)
    if adjust is not None:
        settings = adjust(settings)
    with _naming_checkpoint(path):
        task = registry.open_task(settings)
    task.resume(state, path)
    with _naming_checkpoint(path):
        network = _build(task, state.fitted, saved)
    checkpoints.put_into(saved, path, network)
    return Session(pathlib.Path(run_dir), task, network, state)


@contextlib.contextmanager
def _naming_checkpoint(path):
    try:
        yield
    except InputError as error:
        raise InputError(
            f"{path} must be a valid checkpoint. Received: invalid settings: "
            f"{error} Use the run's other checkpoint, best.npz or last.npz."
        ) from error


def export(
    session, path=None, fitted=None, metadata=None, endpoints=None, **options
):
    """Writes the network as the next version of the run's SavedModel.

    Returns the path of the exported model.

    Args:
        session: a finished or opened `Session`. If its settings set
            `cnn_weights`, the model reads photos although the network was
            trained on features.
        path: new folder for the model, or None for `run_dir/saved_model/<n>`.
        fitted: replacement for the run's fitted values, or None.
        metadata: dict of additional JSON metadata.
        endpoints: the `Endpoints`, or None for the endpoints of the task.
        **options: `half_precision`, `max_pixels` and `extra` of
            `write_saved_model`.
    """
    fitted = fitted or session.state.fitted
    versions = session.run_dir / SAVED_MODEL
    names = "image_features_made_by", "text_features_made_by"
    about = {
        "epoch": session.state.epoch,
        "settings": session.settings.without_places(),
        **{name: fitted.get(name, {}) for name in names},
    }
    return write_saved_model(
        endpoints or session.task.endpoints(session.network, fitted),
        path or versions / str(next_version(versions)),
        metadata=about | (metadata or {}),
        **options,
    )
