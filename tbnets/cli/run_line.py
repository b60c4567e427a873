"""Determines the settings of a run from its command line."""

import os
from typing import NamedTuple

from tbnets.data.archives import has_archives
from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.tasks import registry
from tbnets.tasks.photo_readers import WEIGHTS_BY_NAME
from tbnets.tasks.settings.data_groups import DATA_ROOT_VARIABLE
from tbnets.tasks.settings.flag import CommandLine, written
from tbnets.tasks.settings.records import as_flagfile_line
from tbnets.tasks.settings.settings import (
    ALL,
    FLAGS,
    Settings,
    complete,
    unused_flags,
)
from tbnets.tasks.trained import NETWORK_FLAGS, open_trained

COMMAND_LINE, FLAG_FILE, DEFAULT = "the command line", "a flag file", "default"
"""Sources of a value. The others are a run or model, and a usual flag file."""


class Resolved(NamedTuple):
    """The settings of a run and the sources of their values.

    `sources` maps each flag that does not have its declared default to the name
    of the source that set it.
    """

    settings: Settings
    sources: dict

    def with_usual(self, line, names):
        """Takes unset flags that the run uses from files of `configs/usual`.

        `names` are the names of the files; a later file overrides an earlier
        one. A value from an earlier call is kept.
        """
        values, sources = {}, dict(self.sources)
        for name in names:
            words = [f"--flagfile=usual/{name}"]
            found = CommandLine(words, [*ALL.values()])
            for flag in found.set_flags - _set_names(line):
                if not sources.get(flag, "").startswith("configs/usual/"):
                    values[flag] = found.values[flag], f"configs/usual/{name}"
        used = {flag.name for flag in self.settings.flags()}
        values = {flag: pair for flag, pair in values.items() if flag in used}
        new = {flag: value for flag, (value, _) in values.items()}
        if "loss" in new:
            # The default loss may not read flags that were set for this loss.
            values_now = self.settings.values()
            cleared = {flag for flag in used if values_now[flag] is None}
            new |= {
                flag: line.values[flag] for flag in cleared & line.set_flags
            }
        unused = unused_flags(self.settings.replace(**new))
        new = {flag: new[flag] for flag in new if flag not in unused}
        usual = new.keys() & values.keys()
        sources |= {flag: f"{values[flag][1]}.flags" for flag in usual}
        return Resolved(self.settings.replace(**new), sources)

    def usual(self):
        """Returns the flags that come from `configs/usual`, as one line."""
        values = self.settings.values()
        return " ".join(
            as_flagfile_line(flag.name, values[flag.name]).strip()
            for flag in self.settings.flags()
            if self.sources.get(flag.name, "").startswith("configs/usual/")
        )


def settings(line, before=None):
    """Returns only the `Settings` that `resolve` determines."""
    return resolve(line, before).settings


def resolve(line, before=None):
    """Determines the value of every flag of a run.

    The first of four sources that has a value wins: the command line, a flag
    file, the run or model that the run begins with, and the default. A default
    may depend on other flags, on the environment (`--data_root`), on `--loss`,
    or be in a flag file of `configs/usual` for `--model`.

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
    sources |= dict.fromkeys(line.set_flags & ALL.keys(), FLAG_FILE)
    sources |= dict.fromkeys(line.typed & ALL.keys(), COMMAND_LINE)
    named = {"data_root"} & line.typed
    if not named and DATA_ROOT_VARIABLE in os.environ:
        root = os.environ[DATA_ROOT_VARIABLE]
        take({"data_root": root}, f"{DEFAULT}: {DATA_ROOT_VARIABLE}")
        named = {"data_root"}
    if record["started_in"]:  # Typed paths are relative to the current folder.
        paths = named | {
            name for name in line.typed if _exists_here(name, record)
        }
        record |= {name: os.path.abspath(record[name]) for name in paths}
    if before is not None:
        return Resolved(registry.settings_of(record), sources)
    if record["from"]:
        trained = open_trained(record["from"])
        take(_of_trained(line, trained), f"--from={trained.name}")
    implied = {
        name: value
        for name, value in _implied_values(record).items()
        if name not in line.set_flags and record[name] != value
    }
    take(implied, f"{DEFAULT} with other flags")
    names = [flag.name for flag in FLAGS["loss"] if flag.default is None]
    of_loss = dict.fromkeys(names, f"{DEFAULT} of --loss={record['loss']}")
    resolved = Resolved(registry.settings_of(record), of_loss | sources)
    usual_files = registry.usual_files_of(record["model"])
    return resolved.with_usual(line, usual_files)


def format_settings(resolved):
    """Returns one line per setting, with its value and source."""
    values = resolved.settings.values()
    rows = [
        (as_flagfile_line(flag.name, values[flag.name]).strip(), flag.name)
        for flag in resolved.settings.flags_read()
    ]
    width = max(len(text) for text, _ in rows)
    return "\n".join(
        f"{text:{width}}  {resolved.sources.get(name, DEFAULT)}"
        for text, name in rows
    )


def _exists_here(name, record):
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
            expected = f"be {written(values[name])}, as in {trained.name}"
            received = f"--{name}={written(line.values[name])}"
            raise InputError(f"--{name}", expected, received, "Leave it out.")
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
        if has_archives(
            sources.resolve(path)
        ):  # They have photos and captions.
            values = dict.fromkeys(missing, path)
    settings = registry.settings_of(record | values)
    if hub.is_hub(record["image_encoder"]):
        values["image_size"] = 0
    if settings.reads_photo_folder:
        name = os.path.basename(os.path.abspath(settings.features.images))
        values["run_dir"] = os.path.join("runs", name)
    return values


def check_read(line, settings: Settings):
    """Checks that the run uses the flags on the command line.

    Returns a note on unused flags in flag files, or "".
    """
    groups, unused, unread = settings.groups(), unused_flags(settings), {}
    for group, flags in FLAGS.items():
        for name in {flag.name for flag in flags} & line.set_flags:
            if group not in groups:
                unread[name] = f"with {_users(group)}"
            elif name in unused:
                unread[name] = unused[name]
    for name in sorted(line.typed & unread.keys()):
        received = f"--{name}, which is used only {unread[name]}"
        raise InputError(f"--{name}", "have an effect in this run", received)
    return ", ".join(
        f"--{name} (used {unread[name]})" for name in sorted(unread)
    )


def _users(group):
    entries = [("task", *item) for item in registry.TASKS.items()]
    entries += [("model", *item) for item in registry.MODELS.items()]
    return " or ".join(
        f"--{axis}={name}"
        for axis, name, entry in entries
        if group in entry.flag_groups
    )
