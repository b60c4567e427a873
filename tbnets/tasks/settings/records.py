"""Writes and reads the settings of a run, and checks resumed runs.

A record is a dict from the names of flags to their values.
"""

import os
import pathlib

from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.files import CheckedFile, shown, write_json, write_text
from tbnets.tasks.settings.data_groups import DATA_ROOT_VARIABLE
from tbnets.tasks.settings.flag import written
from tbnets.tasks.settings.settings import ALL, complete

SETTINGS_FILE = "settings.json"
FLAGFILE = "run.flags"


def write_settings(settings, run_dir):
    """Writes the settings of a run as JSON and as a flag file."""
    folder = pathlib.Path(run_dir)
    start = settings.started_in or os.getcwd()
    record = {**settings.values(), "started_in": start}
    write_json(folder / SETTINGS_FILE, record)
    write_text(folder / FLAGFILE, "".join(flagfile_lines(settings)))


def flagfile_lines(settings):
    """Returns the lines of a flag file with the flags that a run reads."""
    values = settings.values()
    names = [flag.name for flag in settings.flags_read()]
    return [as_flagfile_line(name, values[name]) for name in names]


def as_flagfile_line(name, value):
    """Returns the line that sets a flag in a flag file."""
    return f"--{name}={written(value)}\n"


def read_record(run_dir):
    """Returns the record with which a run was started.

    If the run was started in the current folder, or in a folder that no longer
    exists, `started_in` is "".
    """
    path = pathlib.Path(run_dir) / SETTINGS_FILE
    try:
        record = completed(CheckedFile(path).json(), path)
    except (OSError, ValueError) as error:
        received = f"run_dir={run_dir!s} ({error})"
        advice = f"--resume writes {SETTINGS_FILE} again."
        raise InputError(
            "run_dir", "be the folder of a run", received, advice
        ) from error
    here, folder = os.getcwd(), record["started_in"]
    if not os.path.isdir(folder) or os.path.samefile(folder, here):
        record["started_in"] = ""
    return record


def completed(record, path):
    """Checks a record, and adds the defaults of missing flags.

    The environment variable TBNETS_DATA overrides the recorded data root,
    because the data may have moved. `path` is used only in error messages.
    """
    if not isinstance(record, dict) or record.keys() - _KNOWN.keys():
        unknown = record
        if isinstance(record, dict):
            unknown = min(record.keys() - _KNOWN.keys())
        found = shown(unknown)
        raise InputError(f"{path}: expected flags of train; found {found}.")
    try:
        for name, value in record.items():
            if value is not None:
                _KNOWN[name].check(value)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    record = complete(record)
    if DATA_ROOT_VARIABLE in os.environ:
        record["data_root"] = os.path.abspath(os.environ[DATA_ROOT_VARIABLE])
    return record


_KNOWN = {**ALL, "started_in": ALL["run_dir"]._replace(name="started_in")}


def check_resumable(record, settings, place):
    """Raises an error if a resumed run changes flags that affect results.

    `record` is the record of the started run, read from `place`. `settings` are
    the settings with which the run is resumed.
    """
    free = {name for name, flag in ALL.items() if flag.free}
    if settings.optimizer and settings.optimizer.schedule == "cosine":
        free.discard("epochs")
    why = {"epochs": ", but --schedule=cosine decays until the last epoch"}
    free.add("started_in")
    now, unused = settings.values(), settings.unused()
    differing = [
        f"--{name}={value} (now {now[name]}{why.get(name, '')})"
        for name, value in sorted(record.items())
        if name not in free
        and name in now
        and name not in unused
        and hub.unplaced(value) != hub.unplaced(now[name])
    ]
    if differing:
        expected = "be used with the flags with which the run was started"
        received = f"{'; '.join(differing)} in {place}"
        raise InputError("--resume", expected, received)
