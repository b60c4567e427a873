"""What a run was started with, on disk and beside what it is resumed with.

A *record* is all that is kept of settings: a dict, flag -> value. Which of it
are settings depends on the task and the model: see `tasks.settings_of`.
"""

import os
import pathlib

from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import InputError
from tbnets.files import write_json, write_text
from tbnets.flags.data_groups import DATA_ROOT_VARIABLE
from tbnets.flags.table import ALL, complete

SETTINGS_FILE = "settings.json"
FLAGFILE = "run.flags"
RETIRED = {"hard_negatives_per_phrase": 50}
"""Flag of earlier versions -> the value by which all runs go today."""


def write_settings(settings, run_dir):
    """Writes the settings of a run, for programs and as a flagfile.

    The flagfile names the flags that the run reads. The settings tell the
    current folder too, from which their places start.

    Args:
        settings: the run's settings.
        run_dir: its folder.
    """
    folder = pathlib.Path(run_dir)
    record = {**settings.values(), "started_in": os.getcwd()}
    write_json(folder / SETTINGS_FILE, record)
    write_text(folder / FLAGFILE, "".join(flagfile_lines(settings)))


def flagfile_lines(settings):
    """Returns the lines of a flagfile with the flags that a run reads."""
    return [
        as_flagfile_line(flag.name, getattr(settings, flag.name))
        for flag in settings.flags_read()
    ]


def as_flagfile_line(name, value):
    """Returns the line that sets a flag in a flagfile."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"--{name}={value}\n"


def read_record(run_dir):
    """Returns the record of what a run was started with.

    Where `settings.json` alone is damaged, a resumed run writes it again.
    Flags that a run of an older version did not have get their defaults, or
    what such a run did instead. Relative places start from `started_in`: the
    folder that the run was started in, or "" when this is the current one, or
    is gone.

    Raises:
        ValueError: `run_dir` is no folder of a run.
    """
    path = pathlib.Path(run_dir) / SETTINGS_FILE
    try:
        record = completed(CheckedFile(path).json(), path)
    except (OSError, ValueError) as error:
        raise InputError(
            "`run_dir` must be the folder of a run, with "
            f"{SETTINGS_FILE} in it. Received: run_dir={run_dir} ({error}). "
            "Start one with tools/train.py --run_dir=..., or with --resume "
            "too where its checkpoints are there: it writes the file again."
        ) from error
    here, folder = os.getcwd(), record["started_in"]
    if not os.path.isdir(folder) or os.path.samefile(folder, here):
        record["started_in"] = ""
    return record


def completed(record, path):
    """Returns a record of a file or checkpoint with a value of every flag.

    The environment variable TBNETS_DATA beats the data root that was kept:
    data may have moved since. It starts from the current folder.

    Args:
        record: dict, flag -> value.
        path: where it was kept, for the error.

    Raises:
        ValueError: it is no dict, or a flag has a value of another kind.
    """
    _check_kinds(record, path)
    older = {name: flag.before for name, flag in ALL.items()}
    record = {**record, **complete({**older, **record})}
    if DATA_ROOT_VARIABLE in os.environ:
        record["data_root"] = os.path.abspath(os.environ[DATA_ROOT_VARIABLE])
    return record


def _check_kinds(record, path):
    """Refuses what can be no record, naming the first that is wrong."""
    wrong = [("the flags of a run", record)]
    if isinstance(record, dict):
        wrong = [(_why_not(*item), item[1]) for item in record.items()]
    for expected, value in wrong:
        if expected:
            raise InputError(
                f"{path}: expected {expected}; found {shown(value)}. Use "
                "another copy of this file, or start the run again."
            )


_KINDS = {"bool": bool, "integer": int, "float": (int, float), "string": str}
_LISTS = {"list": "string", "integers": "integer"}


def _why_not(name, value):
    """Returns what is expected of a kept value that can be none; or ""."""
    flag = ALL.get(name)
    kind = "string" if name == "started_in" else flag and flag.kind
    if kind is None or value is None:  # Of another version, or not set then.
        return ""
    if kind in _LISTS:
        rights = isinstance(value, list | tuple) and all(
            _is_of_kind(each, _LISTS[kind]) for each in value
        )
        return "" if rights else f"a list of {_LISTS[kind]}s as `{name}`"
    if not _is_of_kind(value, kind):
        return f"a {kind} as `{name}`"
    if flag and flag.choices and value not in flag.choices:
        return f"one of {', '.join(flag.choices)} as `{name}`"
    return ""


def _is_of_kind(value, kind):
    if not isinstance(value, _KINDS[kind]):
        return False
    if isinstance(value, str):
        return _is_a_name(value)
    return isinstance(value, bool) == (kind == "bool")


def _is_a_name(text):
    """Tells whether a text can be part of the name of a file."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def check_resumable(record, settings):
    """Refuses to continue a run with flags that change what it computes.

    Args:
        record: what the run was started with.
        settings: those of the continuation.

    Raises:
        ValueError: listing every flag that differs.
    """
    free = {name for name, flag in ALL.items() if flag.free}
    if getattr(settings, "schedule", "") == "cosine":
        free.discard("epochs")  # Its course depends on the last epoch.
    free.add("started_in")
    now = settings.values()
    differing = [
        f"--{name}={value} (now {now.get(name)})"
        for name, value in sorted(record.items())
        if name not in free
        and (settings.reads(name) or name not in ALL)
        and value != now.get(name, RETIRED.get(name))
    ]
    if differing:
        raise InputError(
            "`--resume` must continue with the flags the run was started "
            f"with. Received: other values than {'; '.join(differing)}. "
            "Restore these, or start a new --run_dir."
        )


def without_places(settings):
    """Returns the settings as a dict without files and folders.

    What leaves the machine must not tell where things lie on it.
    """
    return {
        name: value
        for name, value in settings.values().items()
        if name != "started_in" and not ALL[name].is_place
    }
