"""What a run was started with, on disk and beside what it is resumed with."""

import os
import pathlib
import types

from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import InputError
from tbnets.files import write_json, write_text
from tbnets.flags.data_groups import DATA_ROOT_VARIABLE
from tbnets.flags.flag import reads
from tbnets.flags.table import ALL, complete, flags_read

SETTINGS_FILE = "settings.json"
FLAGFILE = "run.flags"


def write_settings(settings, run_dir, groups):
    """Writes the settings of a run, for programs and as a flagfile.

    The flagfile names the flags that the run reads. The settings tell the
    current folder too, from which their places start.

    Args:
        settings: the run's settings.
        run_dir: its folder.
        groups: names of the groups of flags that its task and model read.
    """
    folder = pathlib.Path(run_dir)
    values = {**vars(settings), "started_in": os.getcwd()}
    write_json(folder / SETTINGS_FILE, values)
    write_text(folder / FLAGFILE, "".join(flagfile_lines(settings, groups)))


def flagfile_lines(settings, groups):
    """Returns the lines of a flagfile with the flags that a run reads.

    Args:
        settings: the run's settings.
        groups: names of the groups of flags that its task and model read.
    """
    return [
        as_flagfile_line(flag.name, getattr(settings, flag.name))
        for flag in flags_read(settings, groups)
    ]


def as_flagfile_line(name, value):
    """Returns the line that sets a flag in a flagfile."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"--{name}={value}\n"


def read_settings(run_dir):
    """Returns the settings that a run was started with.

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
        settings = from_record(CheckedFile(path).json(), path)
    except (OSError, ValueError) as error:
        raise InputError(
            "`run_dir` must be the folder of a run, with "
            f"{SETTINGS_FILE} in it. Received: run_dir={run_dir} ({error}). "
            "Start one with tools/train.py --run_dir=..., or with --resume "
            "too where its checkpoints are there: it writes the file again."
        ) from error
    here, folder = os.getcwd(), settings.started_in
    if not os.path.isdir(folder) or os.path.samefile(folder, here):
        settings.started_in = ""
    return settings


def from_record(values, path):
    """Returns settings from what a file or checkpoint keeps of them.

    The environment variable TBNETS_DATA beats the data root that was kept:
    data may have moved since. It starts from the current folder.

    Args:
        values: dict, flag -> value.
        path: where they were kept, for the error.

    Raises:
        ValueError: it is no dict, or a flag has a value of another kind.
    """
    _check_kinds(values, path)
    older = {name: flag.before for name, flag in ALL.items()}
    values = {**older, **values}
    values = {**values, **complete(values)}
    if DATA_ROOT_VARIABLE in os.environ:
        values["data_root"] = os.path.abspath(os.environ[DATA_ROOT_VARIABLE])
    return types.SimpleNamespace(**values)


def _check_kinds(values, path):
    """Refuses kept settings that can be none, naming the first."""
    wrong = [("the flags of a run", values)]
    if isinstance(values, dict):
        wrong = [(_why_not(*item), item[1]) for item in values.items()]
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
