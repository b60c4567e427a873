"""Determines the settings of a run from its command line."""

import dataclasses
import functools
import os

from tbnets.data.archives import has_archives
from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.tasks import registry
from tbnets.tasks.photo_readers import WEIGHTS_BY_NAME
from tbnets.tasks.settings.data_groups import DATA_ROOT_VARIABLE
from tbnets.tasks.settings.flag import CommandLine, written
from tbnets.tasks.settings.records import as_flagfile_line
from tbnets.tasks.settings.settings import ALL, FLAGS, Settings, complete
from tbnets.tasks.trained import NETWORK_FLAGS, open_trained

COMMAND_LINE, FLAG_FILE, DEFAULT = "the command line", "a flag file", "default"
"""Sources of a value. The others are a run or model, and a usual flag file."""
USUAL = "configs/usual/"
_OF_LOSS = {flag.name: flag for flag in FLAGS["loss"] if flag.name != "loss"}


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The settings of a run and the sources of their values.

    Args:
        begun: values of the resumed run or of the model of --from, and values
            that follow from other flags, as {flag: (value, source)}.
        typed: values of the command line and of its flag files, which override
            all other values.
        usual: values of the files of `configs/usual`, which override `begun`.
    """

    begun: dict
    typed: dict
    usual: dict = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def values(self):
        """All values and their sources, without declared defaults."""
        values = {}
        for layer in (self.begun, self.usual, self.typed):
            if "loss" in layer:  # Flags that were set for another loss.
                names = values.keys() - _OF_LOSS.keys()
                values = {name: values[name] for name in names}
            values |= layer
        return values

    @functools.cached_property
    def record(self):
        """The value of every flag, also of flags that the run does not use."""
        return complete({name: pair[0] for name, pair in self.values.items()})

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of the run."""
        return registry.settings_of(self.record)

    def source(self, name):
        """Returns the name of the source of a flag's value."""
        if name in self.values:
            return self.values[name][1]
        is_of_loss = name in _OF_LOSS and _OF_LOSS[name].default is None
        return DEFAULT + f" of --loss={self.record['loss']}" * is_of_loss

    def with_usual(self, names):
        """Takes unset flags from files of `configs/usual`.

        `names` are the names of the files; a later file overrides an earlier
        one. A value from an earlier call is kept.
        """
        usual = {}
        for name in names:
            words = [f"--flagfile={USUAL}{name}"]
            line = CommandLine(words, [*ALL.values()])
            values = {flag: line.values[flag] for flag in line.set_flags}
            usual |= _layer(values, f"{USUAL}{name}.flags")
        return dataclasses.replace(self, usual=usual | self.usual)

    def usual_flags(self):
        """Returns the flags that come from `configs/usual`, as one line."""
        values = self.settings.values()
        return " ".join(
            as_flagfile_line(flag.name, values[flag.name]).strip()
            for flag in self.settings.flags_read()
            if self.source(flag.name).startswith(USUAL)
        )


def _layer(values, source):
    """Returns {flag: (value, source)}, without values that are None."""
    return {
        k: (value, source) for k, value in values.items() if value is not None
    }


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

    def values_of(names, source):
        names = names & ALL.keys()
        return _layer({name: line.values[name] for name in names}, source)

    of_files = values_of(line.set_flags, FLAG_FILE)
    of_line = values_of(line.typed, COMMAND_LINE)
    if "data_root" not in of_line and DATA_ROOT_VARIABLE in os.environ:
        root = os.environ[DATA_ROOT_VARIABLE]
        of_line["data_root"] = root, f"{DEFAULT}: {DATA_ROOT_VARIABLE}"
    if before is None:
        found = Resolved({}, of_files | of_line)
        begun = _begun_with(found) if found.record["from"] else {}
        found = Resolved(begun, found.typed)
        implied = _layer(_implied_values(found), f"{DEFAULT} with other flags")
        found = Resolved(begun | implied, found.typed)
        model = registry.MODELS[found.record["model"]]
        return found.with_usual(model.usual_files)
    if before["started_in"]:  # Typed paths are relative to the current folder.
        for name, (value, source) in of_line.items():
            if name == "data_root" or _exists_here(name, value):
                of_line[name] = os.path.abspath(value), source
    begun = _layer(before, "the run that is resumed")
    return Resolved(begun, of_files | of_line)


def format_settings(resolved):
    """Returns one line per setting, with its value and source."""
    values = resolved.settings.values()
    rows = [
        (as_flagfile_line(flag.name, values[flag.name]).strip(), flag.name)
        for flag in resolved.settings.flags_read()
    ]
    width = max(len(text) for text, _ in rows)
    return "\n".join(
        f"{text:{width}}  {resolved.source(name)}" for text, name in rows
    )


def _exists_here(name, value):
    if not ALL[name].is_place or name == "run_dir":
        return False
    return os.path.exists(value) and value not in WEIGHTS_BY_NAME


def _begun_with(resolved):
    """Returns the values of the model of --from, as {flag: (value, source)}."""
    trained = open_trained(resolved.record["from"])
    values = trained.values()
    for name in sorted(resolved.typed.keys() & set(NETWORK_FLAGS)):
        value, _ = resolved.typed[name]
        # The folder of a preset may have moved.
        if name in values and hub.unplaced(value) != hub.unplaced(values[name]):
            expected = f"be {written(values[name])}, as in {trained.name}"
            received = f"--{name}={written(value)}"
            raise InputError(f"--{name}", expected, received, "Leave it out.")
    return _layer(values, f"--from={trained.name}")


def _implied_values(resolved):
    values, record = {}, resolved.record
    path = record["captions"] or record["images"]
    sources = Sources(
        record["data_root"], record["started_in"], images=record["images"]
    )
    if record["images"] and not (record["captions"] or record["scenes"]):
        values = sources.captions_beside_photos()
    missing = [k for k in ("captions", "images") if not record[k]]
    if path and missing and not values and not record["scenes"]:
        # Archives have photos and captions.
        if has_archives(sources.resolve(path)):
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
    groups, unused, unread = settings.groups(), settings.unused(), {}
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
