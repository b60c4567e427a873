"""Which folder is a run's, and who may write to it."""

import os
import pathlib

from tbnets.errors import InputError
from tbnets.files import is_partial
from tbnets.locks import FolderLock
from tbnets.tasks.settings import records
from tbnets.tasks.settings.records import SETTINGS_FILE
from tbnets.tasks.settings.settings import Settings
from tbnets.training import checkpoints
from tbnets.training.checkpoints import checkpoint_path

LOCK = "training.lock"
"""Names the process that trains, and is locked as long as it does."""


def check_run_folder(run_dir, resume):
    """Returns the folder of a run, which is new, empty or a run's.

    What a start leaves that was killed before it wrote its settings is as
    good as empty.

    Args:
        run_dir: as a user names it.
        resume: whether it must hold a run.

    Raises:
        ValueError: it is none.
    """
    if not run_dir:
        raise InputError(
            "`--run_dir` must name a folder. Received: --run_dir=. Set for "
            "example --run_dir=runs/first."
        )
    folder = pathlib.Path(run_dir)
    signs = folder / SETTINGS_FILE, checkpoint_path(folder, "last")
    is_run = any(map(os.path.exists, signs))
    if resume and not is_run:
        raise InputError(
            f"`--resume` must come with a run. Received: --run_dir={folder}, "
            "which holds none; leave --resume out to start a run there."
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"`--run_dir` must be a folder. Received: --run_dir={folder}, "
            "which is a file. Name another."
        )
    others = [] if is_run else _of_others(folder)
    if others:
        raise InputError(
            "`--run_dir` must be a new or empty folder, or that of a run. "
            f"Received: --run_dir={folder}, which holds {', '.join(others[:3])}"
            f". Name another, for example --run_dir={folder / 'run'}."
        )
    return folder


def _of_others(folder):
    """Returns the names in a folder that no start of a run has written."""
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if name != LOCK and not is_partial(name)]


def check_untrained(folder):
    """Refuses a folder whose run finished an epoch.

    Raises:
        ValueError: it did; tells how that run goes on.
    """
    if checkpoint_path(folder, "last").exists():
        raise InputError(
            "`--run_dir` must be a new folder. Received: "
            f"--run_dir={folder}, which holds a run. Add --resume to continue "
            "it, or choose another folder."
        )


def lock_run(folder):
    """Makes the folder of a run and keeps other trainings out of it.

    Reading it, and exporting what is in it, is left to everybody.

    Returns:
        The `FolderLock`, which holds as long as somebody refers to it.

    Raises:
        FileExistsError: another process trains there; tells which.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FolderLock.take(folder, LOCK, "--run_dir")


def check_same_run(workers, settings: Settings, last):
    """Refuses a worker with other flags, or that goes on from another epoch.

    Args:
        workers: the `Workers` that train.
        settings: those of this worker.
        last: path of its last checkpoint, which need not be there.

    Raises:
        ValueError: it is another than the chief's; tells what differs.
    """
    advice = "Start all workers by the same command."
    flags = records.without_places(settings)
    workers.check_same("the flags", flags, advice)
    epoch = checkpoints.read_progress(last).epoch if last.exists() else 0
    advice = "Name a folder that all workers share."
    workers.check_same("--run_dir", {"epochs": epoch}, advice)
