"""Writes docs/measured/NAME.json from finished runs."""

import contextlib
import datetime
import io
import pathlib
import re
import shlex
import tempfile

from reproducing import measured
from tbnets import cli
from tbnets.cli import run_line, train
from tbnets.errors import InputError
from tbnets.files import CheckedFile, write_json
from tbnets.tasks import registry
from tbnets.tasks.settings.flag import (
    CommandLine,
    configs_folder,
    flags_of,
    written,
)
from tbnets.tasks.settings.records import read_record
from tbnets.tasks.settings.settings import ALL

_OF_A_RUN = {"run_dir", "seed", "data_root"}
_LEARNED_FROM = {"word_vectors"}
"""Flags that name a file on which the network depends."""
_REPORTED = ("best_epoch", "epochs", "train_seconds", "dev", "test", "versions")


def record(folders, name, cpu, target):
    """Writes the results of runs that differ only in their seeds.

    The file `target`/NAME.json is named by `name` or, if it is empty, by the
    configuration. If the row `name` specifies flags for tbnets evaluate, the
    runs are evaluated with these flags. Results of other seeds are kept if they
    were recorded with the same flags and processor.
    """
    runs = [_read(pathlib.Path(folder)) for folder in folders]
    configuration, flags = runs[0]["row"]
    rows, seeds = ([run[key] for run in runs] for key in ("row", "seed"))
    if len({*rows}) > 1 or len({*seeds}) < len(seeds):
        raise InputError(
            "--record",
            "be runs that differ only in their seeds",
            f"seeds {', '.join(map(str, seeds))}, {', '.join(map(str, rows))}",
            "Record each row separately, with its own --name.",
        )
    if flags and not name:
        raise InputError(
            "--record",
            f"be runs with the flags of {configuration or 'a configuration'}",
            f"{folders[0]}, which also has {flags}",
            "Name this row by --name, or train without these flags.",
        )
    kernels = {run["report"]["versions"].get("kernels", "") for run in runs}
    cpu = f"{cpu}, oneDNN" if kernels == {"oneDNN"} else cpu
    known = measured.read(target).row(name)
    if name:
        _check_name(name, runs[0]["row"], known)
        flags = known.flags if known else flags
    about = {"configuration": configuration, "flags": flags, "cpu": cpu}
    if known and known.evaluation:
        about |= {"of": known.of, "evaluation": known.evaluation}
        for folder, run in zip(folders, runs):
            run["report"] |= _evaluated(folder, known.evaluation, run["seed"])
    path = pathlib.Path(target, f"{name or configuration}.json")
    before = CheckedFile(path).json() if path.exists() else {}
    is_the_same = before.items() >= about.items()
    reports = before["seeds"] if is_the_same else {}
    reports |= {str(run["seed"]): run["report"] for run in runs}
    date = max(run["date"] for run in runs)
    write_json(path, about | {"date": date, "seeds": reports})
    return path


def _check_name(name, about, known):
    expected = about
    if known:
        expected = known.configuration, flags_of_row(known)
    elif (configs_folder() / f"{name}.flags").is_file():
        expected = name, ""
    if expected != about or not name.isidentifier():
        raise InputError(
            "--name",
            "be letters, digits and underscores, and not name another row",
            f"--name={name}, the name of {expected}, for runs of {about}",
            "Choose another name.",
        )


def flags_of_row(row):
    """Returns the flags of a row in the format that `record` uses."""
    if not row.configuration:
        return row.flags
    words = [f"--flagfile={row.configuration}", *row.flags.split()]
    with contextlib.redirect_stdout(io.StringIO()):
        return _differing(_settings(words), row.configuration)


def _typed(command):
    words = shlex.split(command)[1:]
    ignored = tuple(f"--{name}=" for name in (*_OF_A_RUN, "cache"))
    return shlex.join(word for word in words if not word.startswith(ignored))


def _settings(words):
    line = CommandLine(words, [*ALL.values(), *flags_of(train.Options)])
    resolved = run_line.resolve(line)
    usual_files = registry.open_task(resolved.settings).usual_files
    return resolved.with_usual(usual_files).settings


def _read(folder):
    settings = registry.settings_of(read_record(folder))
    path = folder / "metrics.json"
    report = CheckedFile(path).json() if path.exists() else {}
    waited = report.get("epochs", 0) - report.get("best_epoch", 0)
    ended = report.get("epochs") == settings.epochs
    if not ended and not 0 < settings.patience <= waited:
        raise InputError(
            "--record",
            "be folders of finished runs",
            f"{folder}, of {report.get('epochs', 0)} epochs in its "
            f"metrics.json, and of {settings.epochs} in its flags",
            f"Resume it: tbnets train --resume --run_dir={folder}.",
        )
    if "test" not in report:
        raise InputError(
            f"{path}: expected metrics of a test split; found none. Record a "
            "run that has one."
        )
    configuration = re.search(r"--flagfile=(\S+)", report["command"])
    if configuration:
        name = pathlib.Path(configuration[1]).stem
        row = name, _differing(settings, name)
    else:
        row = "", _typed(report["command"])
    ended_on = datetime.date.fromtimestamp(path.stat().st_mtime)
    return {
        "row": row,
        "seed": settings.run.seed,
        "report": {key: report[key] for key in _REPORTED},
        "date": ended_on.isoformat(),
    }


def _evaluated(folder, flags, seed):
    words = [f"--run_dir={folder}", *shlex.split(flags.format(seed=seed))]
    metrics = {}
    with tempfile.TemporaryDirectory() as place:
        for split in ("dev", "test"):
            path = pathlib.Path(place, f"{split}.json")
            last = [f"--split={split}", f"--json={path}"]
            cli.call("evaluate", [*words, *last])
            metrics[split] = CheckedFile(path).json()
    return metrics


def _differing(settings, name):
    with contextlib.redirect_stdout(io.StringIO()):
        usual = _settings([f"--flagfile={name}"]).values()
    differing = []
    values = settings.values()
    for flag in settings.flags_read():
        value = written(values[flag.name])
        if flag.name in _OF_A_RUN or value == written(
            usual.get(flag.name, flag.default)
        ):
            continue
        is_recipe = value.endswith(".flags")
        if not flag.is_place or is_recipe or flag.name in _LEARNED_FROM:
            differing.append(f"--{flag.name}={value}")
    return " ".join(differing)


def this_cpu():
    """Returns the name and vector instructions of this processor."""
    with contextlib.suppress(OSError):
        cpu_info = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
        model = re.search(r"^model name\s*: (.*)$", cpu_info, re.M)
        kinds = ("avx512_bf16", "avx512f", "avx2")
        kind = next((k for k in kinds if re.search(rf"\b{k}\b", cpu_info)), "")
        words = {"avx512_bf16": "AVX512, bfloat16", "avx512f": "AVX512"}
        if model:
            return f"{model[1]}, {words.get(kind, kind.upper())}"
    return "not known"
