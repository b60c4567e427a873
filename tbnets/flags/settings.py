"""What a run was started with, on disk and beside what it is resumed with."""

import json
import os
import pathlib
import types

from tbnets.errors import InputError
from tbnets.files import write_atomically
from tbnets.files import write_json
from tbnets.flags.data_groups import DATA_ROOT_VARIABLE
from tbnets.flags.flag import reads
from tbnets.flags.table import ALL
from tbnets.flags.table import complete

SETTINGS_FILE = "settings.json"
FLAGFILE = "run.flags"


def write_settings(settings, run_dir):
    """Writes the settings of a run, for programs and as a flagfile.

    The flagfile names the flags that the others leave to be read. The
    settings tell the current folder too, from which their places start.

    Args:
        settings: the run's settings.
        run_dir: its folder.
    """
    folder = pathlib.Path(run_dir)
    values = {**vars(settings), "started_in": os.getcwd()}
    write_json(folder / SETTINGS_FILE, values)
    lines = [
        as_flagfile_line(name, getattr(settings, name))
        for name, flag in ALL.items()
        if reads(flag, settings)
    ]
    content = "".join(lines).encode()
    write_atomically(folder / FLAGFILE, lambda file: file.write(content))


def as_flagfile_line(name, value):
    """Returns the line that sets a flag in a flagfile."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"--{name}={value}\n"


def read_settings(run_dir):
    """Returns the settings that a run was started with.

    Flags that a run of an older version did not have get their defaults, or
    what such a run did instead. Relative places start from `started_in`: the
    folder that the run was started in, or "" when this is the current one, or
    is gone.

    Raises:
        ValueError: `run_dir` is no folder of a run.
    """
    path = pathlib.Path(run_dir) / SETTINGS_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        settings = from_record(values)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            "`run_dir` must be the folder of a run, with "
            f"{SETTINGS_FILE} in it. Received: run_dir={run_dir} ({error}). "
            "Start one with tools/train.py --run_dir=..."
        ) from error
    here, folder = os.getcwd(), settings.started_in
    if not os.path.isdir(folder) or os.path.samefile(folder, here):
        settings.started_in = ""
    return settings


def from_record(values):
    """Returns settings from what a file or checkpoint keeps of them.

    The environment variable TBNETS_DATA beats the data root that was kept:
    data may have moved since. It starts from the current folder.

    Args:
        values: dict, flag -> value.
    """
    older = {name: flag.before for name, flag in ALL.items()}
    values = {**older, **values}
    values = {**values, **complete(values)}
    if DATA_ROOT_VARIABLE in os.environ:
        values["data_root"] = os.path.abspath(os.environ[DATA_ROOT_VARIABLE])
    return types.SimpleNamespace(**values)


def check_resumable(before, now):
    """Refuses to continue a run with flags that change what it computes.

    Args:
        before: settings the run was started with.
        now: settings of the continuation.

    Raises:
        ValueError: listing every flag that differs.
    """
    free = {name for name, flag in ALL.items() if flag.free}
    if now.schedule == "cosine":  # Its course depends on the last epoch.
        free.discard("epochs")
    differing = [
        f"--{name}={value} (now {getattr(now, name, None)})"
        for name, value in sorted(vars(before).items())
        if name not in free
        and getattr(now, name, None) != value
        and not _unread(name, before, now)
    ]
    if differing:
        raise InputError(
            "`--resume` must continue with the flags the run was started "
            f"with. Received: other values than {'; '.join(differing)}. "
            "Restore these, or start a new --run_dir."
        )


def _unread(name, *settings):
    """Tells whether no settings leave a flag to be read."""
    flag = ALL.get(name)
    return flag and not any(reads(flag, each) for each in settings)


def without_places(settings):
    """Returns the settings as a dict without files and folders.

    What leaves the machine must not tell where things lie on it.
    """
    return {
        name: value
        for name, value in vars(settings).items()
        if name != "started_in" and not (name in ALL and ALL[name].is_place)
    }
