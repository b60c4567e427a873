"""Determines the settings of a run from its command line."""

import os
from typing import NamedTuple

from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.tasks import registry
from tbnets.tasks.photo_readers import WEIGHTS_BY_NAME
from tbnets.tasks.settings.data_groups import DATA_ROOT_VARIABLE
from tbnets.tasks.settings.flag import written
from tbnets.tasks.settings.records import as_flagfile_line
from tbnets.tasks.settings.settings import (
    ALL,
    FLAGS,
    Settings,
    complete,
    unused_flags,
)
from tbnets.tasks.trained import NETWORK_FLAGS, open_trained


class Resolved(NamedTuple):
    """The settings of a run and the sources of their values.

    `sources` maps each flag that was set to the name of the source that set it.
    """

    settings: Settings
    sources: dict


def settings(line, before=None):
    """Returns only the `Settings` that `resolve` determines."""
    return resolve(line, before).settings


def resolve(line, before=None):
    """Determines the value of every flag of a run.

    Uses the first of these sources that has a value: the command line, the
    environment (for `--data_root`), a flag file, the resumed run, the model of
    `--from`, values that follow from other flags, the preset of `--loss`, or
    the default.

    Args:
        line: the `CommandLine`.
        before: record of the resumed run, if any.
    """
    record, sources = dict(line.values), {}

    def take(values, source):
        record.update(values)
        sources.update(dict.fromkeys(values, source))

    if before is not None:
        names = {*ALL.keys() - line.set_flags, "started_in"}
        take({name: before[name] for name in names}, "the run that is resumed")
    record = complete(record)
    sources |= dict.fromkeys(line.set_flags & ALL.keys(), "a flag file")
    sources |= dict.fromkeys(line.typed & ALL.keys(), "the command line")
    named = {"data_root"} & line.typed
    if not named and DATA_ROOT_VARIABLE in os.environ:
        root = os.environ[DATA_ROOT_VARIABLE]
        take({"data_root": root}, f"the environment's {DATA_ROOT_VARIABLE}")
        named = {"data_root"}
    if record["started_in"]:  # Typed paths are relative to the current folder.
        paths = named | {
            name for name in line.typed if _lies_here(name, record)
        }
        record |= {name: os.path.abspath(record[name]) for name in paths}
    if before is None:
        if record["from"]:
            trained = open_trained(record["from"])
            take(_of_trained(line, trained), f"--from={trained.name}")
        implied = {
            name: value
            for name, value in _implied_values(record).items()
            if name not in line.set_flags and record[name] != value
        }
        take(implied, "other flags")
    preset = f"--loss={record['loss']}"
    loss_flags = [f.name for f in FLAGS["loss"] if f.default is None]
    sources = {**dict.fromkeys(loss_flags, preset), **sources}
    return Resolved(registry.settings_of(record), sources)


def format_settings(resolved):
    """Returns one line per setting, with its value and source."""
    values = resolved.settings.values()
    rows = [
        (as_flagfile_line(flag.name, values[flag.name]).strip(), flag.name)
        for flag in resolved.settings.flags_read()
    ]
    width = max(len(text) for text, _ in rows)
    return "\n".join(
        f"{text:{width}}  {resolved.sources.get(name, 'default')}"
        for text, name in rows
    )


def _lies_here(name, record):
    if name not in ALL or not ALL[name].is_place or name == "run_dir":
        return False
    by_word = record[name] in WEIGHTS_BY_NAME
    return os.path.exists(record[name]) and not by_word


def _set_names(line):
    """Returns the names of set flags. Setting --loss sets every loss flag."""
    names = set(line.set_flags)
    if "loss" in names:
        names |= {flag.name for flag in FLAGS["loss"]}
    return names


def _of_trained(line, trained):
    set_names, values = _set_names(line), trained.values()
    for name in sorted(set_names & values.keys() & set(NETWORK_FLAGS)):
        # The folder of a preset may have moved.
        if hub.unplaced(line.values[name]) != hub.unplaced(values[name]):
            raise InputError(
                f"--{name}",
                "equal the value of the model that the run starts from, "
                f"{written(values[name])}",
                f"--{name}={written(line.values[name])} with "
                f"--from={trained.name}",
                "Leave out one flag.",
            )
    return {name: values[name] for name in values.keys() - set_names}


def _implied_values(record):
    values = {}
    path = record["captions"] or record["images"]
    sources = Sources(
        record["data_root"], record["started_in"], images=record["images"]
    )
    if record["images"] and not (record["captions"] or record["scenes"]):
        values = sources.captions_beside_photos()
    missing = [k for k in ("captions", "images") if not record[k]]
    if path and missing and not values and not record["scenes"]:
        if sources.has_archives(path):  # They have photos and captions.
            values = dict.fromkeys(missing, path)
    settings = registry.settings_of(record | values)
    if hub.is_hub(record["image_encoder"]):
        values["image_size"] = 0
    if settings.reads_photo_folder:
        name = os.path.basename(os.path.abspath(settings.features.images))
        values["run_dir"] = os.path.join("runs", name)
    return values


def not_given(line, settings: Settings, values):
    """Returns the `values` of flags that the run uses and the user omitted."""
    free = {flag.name for flag in settings.flags()} - _set_names(line)
    used = {name: values[name] for name in values if name in free}
    unused = unused_flags(settings.replace(**used))
    return {name: used[name] for name in used if name not in unused}


def check_read(line, settings: Settings):
    """Checks that the run uses the flags on the command line.

    Returns a note on unused flags in flag files, or "".
    """
    fixed = registry.fixed_flags(settings.values())
    groups, unused, unread = settings.groups(), unused_flags(settings), {}
    for group, members in FLAGS.items():
        for flag in members:
            name = flag.name
            agrees = name in fixed and line.values[name] == fixed[name]
            if name not in line.set_flags or agrees:
                continue
            if group not in groups:
                unread[name] = _readers(group)
            elif name in fixed:
                raise InputError(
                    f"--{name}",
                    f"be {fixed[name]} for --task={settings.run.task} and "
                    f"--model={settings.run.model}",
                    f"--{name}={line.values[name]}",
                    "Change one flag.",
                )
            elif name in unused:
                unread[name] = unused[name]
    for name in sorted(line.typed & unread.keys()):
        raise InputError(
            f"--{name}",
            "have an effect in this run",
            f"--{name}={line.values[name]}, which is used {unread[name]}",
            f"Leave --{name} out, or change the flags that exclude it.",
        )
    return ", ".join(
        f"--{name} (used {reader})" for name, reader in unread.items()
    )


def _readers(group):
    tasks = [
        f"--task={name}"
        for name, task in registry.TASKS.items()
        if group in task.flag_groups
    ]
    models = [
        f"--model={name}"
        for name, model in registry.MODELS.items()
        if group in model.flag_groups
    ]
    return f"with {' or '.join(tasks + models)}"
