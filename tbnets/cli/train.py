"""Train a network, evaluate its best epoch and export it.

    tbnets train --flagfile=configs/quickstart.flags
    tbnets train --resume --run_dir=runs/quickstart

Train on your own photos, with a table of images and captions:

    tbnets train --images=photos --captions=captions.csv

Add --from=NAME to start from a trained model. A flag file can name a recipe
for features, boxes or trees, which are then computed once, before training
(docs/recipes.md). --dry_run lists what is missing:

    tbnets train --flagfile=configs/flickr8k_lite0.flags --dry_run

Flags on the command line override the flag file. A resumed run keeps its flags.
The run folder contains checkpoints, metrics.json, curves.png, examples.png,
TensorBoard event files and a SavedModel that takes raw captions.
"""

import contextlib
import dataclasses
import io
import shlex
import sys

from tbnets import progress, startup
from tbnets.cli import run_line
from tbnets.errors import InputError
from tbnets.evaluation.tables import format_table
from tbnets.features import text_presets
from tbnets.tasks import own_photos, registry, runs
from tbnets.tasks.recipes import plan
from tbnets.tasks.settings.flag import (
    Flag,
    Whole,
    changed,
    flag,
    flags_of,
    must_come_with,
)
from tbnets.tasks.settings.settings import ALL, FLAGS
from tbnets.tasks.settings.settings import GROUPS as RUN_GROUPS
from tbnets.training import distribution, loop, summary

GROUPS = tuple(RUN_GROUPS.values())
"""Groups of flags that, unlike `Options`, are settings of a run."""
FIRST = (
    "flagfile run_dir resume from scenes captions images image_features "
    "image_encoder text_encoder epochs example_query"
).split()
"""Flags for a first run, which --help shows first instead of in groups."""
DEVICES = "distribute", "num_replicas"
SHOWN = {"learning curves": runs.CURVES, "examples drawn": runs.EXAMPLES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the command that are not settings of the run."""

    example_query: list[str] = flag(
        [],
        "Example query for the exported model, on the test split.",
        kind="repeated",
    )
    resume: bool = flag(
        False,
        "Continue the run of --run_dir; flags left unset keep the run's "
        "values.",
    )
    distribute: str = flag(
        "none",
        "Devices that share each batch: one device, all GPUs of this "
        "machine, or the workers in the environment variable TF_CONFIG.",
        choices=distribution.KINDS,
    )
    num_replicas: Whole = flag(
        0,
        "GPUs (or parts of the CPU) for --distribute=mirrored; 0: all GPUs.",
    )
    dry_run: bool = flag(
        False,
        "List the files that recipes would compute, and exit.",
    )
    print_settings: bool = flag(
        False, "Print each setting of the run with its source, and exit."
    )


def help_sections():
    """Returns {title: flags}, the sections of --help, main flags first."""
    known = {**ALL, **{option.name: option for option in flags_of(Options)}}
    for name, option in ALL.items():
        if option.only:
            text = f"{option.help} Only {option.only.words}."
            known[name] = option._replace(help=text)
    known["flagfile"] = Flag(
        "flagfile",
        str,
        "",
        "File of flags, one per line, or the name of a configuration. Later "
        "flags override it.",
    )
    axes = {"task": registry.TASKS, "model": registry.MODELS}
    for name, entries in axes.items():
        known[name] = known[name]._replace(choices=tuple(entries))
    sections = {"Main flags": [known[name] for name in FIRST]}
    sections["Devices that train together"] = [known[name] for name in DEVICES]
    for name, group in RUN_GROUPS.items():
        title = group.__doc__.partition("\n")[0].rstrip(".")
        sections[title] = [
            known[option.name]
            for option in FLAGS[name]
            if option.name not in FIRST
        ]
    return sections


def checked_settings(options, line):
    """Checks the flags of a run, and returns its `Resolved` settings."""
    if not line.set_flags:
        advice = "Add --images and --captions, or --flagfile=quickstart."
        raise InputError("tbnets train", "get training data", "none", advice)
    resolved = run_line.resolve(line)
    if options.resume:
        before = runs.record_before(resolved.settings.run.run_dir)
        resolved = run_line.resolve(line, before)
    else:
        usual_files = registry.open_task(resolved.settings).usual_files
        resolved = resolved.with_usual(usual_files)
        if usual := resolved.usual_flags():
            print(f"usual flags  {usual}")
        source = resolved.source("text_encoder")
        if source == own_photos.WORDS_ONLY and not text_presets.has_minilm():
            print(own_photos.WITHOUT_ENCODER)
    settings = resolved.settings
    run_line.check_read(line, settings)
    if "example_query" in line.typed and not settings.run.export:
        requirement = "--export, because the exported model answers"
        raise must_come_with(options, "example_query", requirement)
    return resolved


def describe_missing(task):
    """Describes missing recipe results. If none is missing, checks the data."""
    results = task.missing()
    if not results:
        task.check()
    parts = plan.describe(results), task.extracts
    return "\n".join(filter(None, parts))


def fit_or_stop(session, train, options):
    """Trains, and prints the command to resume if training is stopped."""
    try:
        with startup.interrupts():
            loop.fit(session, train)
    except KeyboardInterrupt:
        if not session.workers.is_chief:
            raise
        names = [name for name in DEVICES if name in changed(options)]
        values = {name: vars(options)[name] for name in names}
        values = {"run_dir": session.run_dir, **values}
        flags = shlex.join(f"--{name}={values[name]}" for name in values)
        print(
            "\nstopped; finished epochs are saved. Continue with: "
            f"tbnets train --resume {flags}",
            file=sys.stderr,
        )
        raise


def main(options, line):
    """Runs the training. `line` contains the flags of the run."""
    loop.make_reproducible()
    if options.dry_run or options.print_settings:
        resolved = checked_settings(options, line)
        if options.print_settings:
            print(run_line.format_settings(resolved))
        else:
            print(describe_missing(registry.open_task(resolved.settings)))
        return
    workers = distribution.open_workers(
        options.distribute, options.num_replicas
    )
    with workers.watched(), _quiet_unless(workers.is_chief):
        _train(options, line, workers)
        workers.wait()


@contextlib.contextmanager
def _quiet_unless(is_chief):
    if is_chief:
        yield
        return
    progress.hide_bars()
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _train(options, line, workers):
    settings = checked_settings(options, line).settings
    folder = runs.start(settings, options.resume)
    if summary.finished(settings, folder):
        print(summary.finished(settings, folder))
        return
    queries = options.example_query if settings.run.export else []
    if workers.is_chief:
        progress.say("reading the data and building the network ...")
    session, train = runs.prepare(settings, folder, queries, workers)
    if settings.run.export and not queries:
        queries = session.task.example_queries
    print(summary.describe_run(session, train))
    if unread := run_line.check_read(line, settings):
        print(f"not used  {unread}")
    fit_or_stop(session, train, options)
    if workers.is_chief:
        _finish(session, queries)


def _finish(session, queries):
    settings, folder = session.settings, session.run_dir
    progress.say("evaluating the best epoch ...")
    report = runs.finish(session)
    split = "test" if "test" in report else "dev"
    title = f"{split}, epoch {report['best_epoch']}"
    print(format_table(report[split], title))
    for title, name in SHOWN.items():
        if (folder / name).is_file():
            print(f"{title:<16} {folder / name}")
    if settings.run.export:
        progress.say("exporting the network ...")
        saved_model = runs.export(session)
        print(f"SavedModel       {saved_model}")
        if queries:
            print(session.task.answer(saved_model, queries, folder))
