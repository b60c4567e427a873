"""What a run takes from a command line."""

import os
import types

from tbnets.data.format_guess import usual_format
from tbnets.errors import InputError
from tbnets.flags.data_groups import DATA_ROOT_VARIABLE
from tbnets.flags.flag import reads, what_reads
from tbnets.flags.table import ALL, FLAGS, complete


def settings(line, before=None):
    """Returns the flags of a run as plain attributes.

    Args:
        line: the `CommandLine`.
        before: settings of a run that goes on, from which come the flags
            that are not given; None for their defaults.
    """
    values = dict(line.values)
    if before is None:
        values.update(_usual_values(line))
    else:
        kept = {name: getattr(before, name) for name in ALL.keys() - line.given}
        values.update(kept)
    values = complete(values)
    if "data_root" not in line.typed:
        values["data_root"] = os.environ.get(
            DATA_ROOT_VARIABLE, values["data_root"]
        )
    return types.SimpleNamespace(**values)


def _usual_values(line):
    """Returns flags that were not given and whose value others suggest."""
    found = {
        "captions_format": usual_format(line.values["captions"]),
        "run_dir": run_dir(line),
    }
    return {name: v for name, v in found.items() if name not in line.given}


def run_dir(line):
    """Returns the folder of the run: --run_dir, or by --images its usual one.

    A run on the photos of FOLDER alone, of no task that is named, is by custom
    in runs/FOLDER.
    """
    values = types.SimpleNamespace(**line.values)
    if {"run_dir", "task"} & line.given or not reads(ALL["cnn"], values):
        return values.run_dir
    name = os.path.basename(os.path.abspath(values.images))
    return os.path.join("runs", name)


def fill(line, settings, values):
    """Gives flags that are not given on the command line or in a flagfile.

    Where a paper's loss was asked for, its values stay.

    Args:
        line: the `CommandLine`.
        settings: the run's settings, which are changed.
        values: dict, name -> value.

    Returns:
        dict, those that were taken.
    """
    own = set(line.given)
    if "loss" in own:
        own |= {flag.name for flag in FLAGS["triplet_loss"]}
    taken = {name: v for name, v in values.items() if name not in own}
    vars(settings).update(taken)
    return taken


def check_read(
    line, settings, groups, readers, fixed=types.MappingProxyType({})
):
    """Refuses flags on the command line that nothing reads.

    Where a run leaves a flag that others read by at one value, no other may
    be given, in a flagfile either.

    Args:
        line: the `CommandLine`.
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
    for group, members in FLAGS.items():
        for flag in members:
            name = flag.name
            agrees = name in fixed and line.values[name] == fixed[name]
            if name not in line.given or agrees:
                continue
            if group not in groups:
                unread[name] = readers.get(group, "nothing")
            elif name in fixed:
                raise InputError(
                    f"`--{name}` must be {fixed[name]} with "
                    f"--task={settings.task} and --model={settings.model}. "
                    f"Received: --{name}={line.values[name]}. Give "
                    f"--{name}={fixed[name]}, or change the task or the model."
                )
            elif not reads(flag, settings):
                unread[name] = what_reads(flag)
    for name in sorted(line.typed & unread.keys()):
        raise InputError(
            f"`--{name}` must be a flag that this run reads. Received: "
            f"--{name}={line.values[name]}, which is read with "
            f"{unread[name]}. Change that, or leave --{name} out."
        )
    return ", ".join(
        f"--{name} (read with {reader})" for name, reader in unread.items()
    )
