"""Flags as tools define and parse them.

Tools turn flags into plain `settings` (an object with one attribute a flag);
the library takes settings or arguments and never looks at flags.
"""

import os
import sys
import types

from absl import flags

from tbnets.data.format_guess import usual_format
from tbnets.errors import InputError
from tbnets.flags.data_groups import DATA_ROOT_VARIABLE
from tbnets.flags.flag import reads, what_reads
from tbnets.flags.table import ALL, GROUPS, complete

FLAGS = flags.FLAGS


def define_run_flags(tasks=(), models=()):
    """Defines every flag of a run; call once, at import of a tool.

    Args:
        tasks: names of the tasks, for --help.
        models: names of the models, for --help.
    """
    names = {"task": tasks, "model": models}
    for flag in ALL.values():
        text = flag.help
        if names.get(flag.name):
            text += f" One of {', '.join(names[flag.name])}."
        if flag.default is None:
            text += " By default as in the paper of --loss."
        if flag.choices:
            flags.DEFINE_enum(flag.name, flag.default, flag.choices, text)
        else:
            kind = "list" if flag.kind == "integers" else flag.kind
            value = flag.default
            if kind == "list":
                value = list(value)
            getattr(flags, f"DEFINE_{kind}")(flag.name, value, text)


def settings(before=None):
    """Returns the parsed flags of a run as plain attributes.

    Args:
        before: settings of a run that goes on, from which come the flags
            that are not given; None for their defaults.

    Raises:
        ValueError: a list that must hold integers does not.
    """
    values = {
        name: FLAGS[name].value
        if before is None or FLAGS[name].present
        else getattr(before, name)
        for name in ALL
    }
    for name, flag in ALL.items():
        if flag.kind != "integers":
            continue
        try:
            values[name] = [int(item) for item in values[name]]
        except ValueError as error:
            raise InputError(
                f"`--{name}` must be integers with commas between. "
                f"Received: --{name}={','.join(values[name])}. "
                "A comment can not follow a value in a flagfile."
            ) from error
    if before is None:
        values.update(_usual_values(values))
    values = complete(values)
    if "data_root" not in on_command_line():
        values["data_root"] = os.environ.get(
            DATA_ROOT_VARIABLE, values["data_root"]
        )
    return types.SimpleNamespace(**values)


def _usual_values(values):
    """Returns flags that were not given and whose value others suggest."""
    found = {}
    if not FLAGS["captions_format"].present:
        found["captions_format"] = usual_format(values["captions"])
    if not FLAGS["run_dir"].present:
        found["run_dir"] = run_dir()
    return found


def run_dir():
    """Returns the folder of the run: --run_dir, or by --images its usual one.

    A run on the photos of FOLDER alone is by custom in runs/FOLDER.
    """
    given = FLAGS["run_dir"]
    values = types.SimpleNamespace(**{name: FLAGS[name].value for name in ALL})
    if given.present or not reads(ALL["cnn"], values):
        return given.value
    name = os.path.basename(os.path.abspath(values.images))
    return os.path.join("runs", name)


def fill(settings, values):
    """Gives flags that are not given on the command line or in a flagfile.

    Where a paper's loss was asked for, its values stay.

    Args:
        settings: the run's settings, which are changed.
        values: dict, name -> value.

    Returns:
        dict, those that were taken.
    """
    own = {name for name in values if FLAGS[name].present}
    if FLAGS["loss"].present:
        own |= {flag.name for flag in GROUPS["triplet_loss"]}
    taken = {name: v for name, v in values.items() if name not in own}
    vars(settings).update(taken)
    return taken


def on_command_line(known=ALL):
    """Returns the names of the flags given on the command line itself.

    Args:
        known: the names of flags to look for.
    """
    names = {
        word.lstrip("-").partition("=")[0]
        for word in sys.argv[1:]
        if word.startswith("-")
    }
    return {name for name in known if name in names or f"no{name}" in names}


def check_read(settings, groups, readers, fixed=types.MappingProxyType({})):
    """Refuses flags on the command line that nothing reads.

    Where a run leaves a flag that others read by at one value, no other may
    be given, in a flagfile either.

    Args:
        settings: the run's settings.
        groups: names of the groups that the run's task and model read.
        readers: group -> the tasks and models that read it, in words.
        fixed: flag -> the one value that it has in this run.

    Returns:
        A line that names those of the flagfiles that nothing reads; "".

    Raises:
        ValueError: one was given on the command line, with what would read
            it; or one has another value than its run leaves it at.
    """
    unread = {}
    for group, members in GROUPS.items():
        for flag in members:
            if not _is_given(flag.name, fixed):
                continue
            if group not in groups:
                unread[flag.name] = readers.get(group, "nothing")
            elif flag.name in fixed:
                _refuse_other(settings, flag.name, fixed[flag.name])
            elif not reads(flag, settings):
                unread[flag.name] = what_reads(flag)
    for name in on_command_line():
        if name in unread:
            raise InputError(
                f"`--{name}` must be a flag that this run reads. Received: "
                f"--{name}={FLAGS[name].value}, which is read with "
                f"{unread[name]}. Change that, or leave --{name} out."
            )
    return ", ".join(
        f"--{name} (read with {reader})" for name, reader in unread.items()
    )


def _is_given(name, fixed):
    """Tells whether a flag is given, and does not say what is fixed."""
    agrees = name in fixed and FLAGS[name].value == fixed[name]
    return FLAGS[name].present and not agrees


def _refuse_other(settings, name, value):
    """Raises the error of a flag that this run leaves at one value."""
    raise InputError(
        f"`--{name}` must be {value} with --task={settings.task} and "
        f"--model={settings.model}. Received: --{name}={FLAGS[name].value}. "
        f"Give --{name}={value}, or change the task or the model."
    )
