"""Trains a network, evaluates its best epoch and exports it.

    python tools/train.py --flagfile=configs/quickstart.flags
    python tools/train.py --resume --run_dir=runs/quickstart

or on photos of your own, with a table of image and caption:

    python tools/train.py --images=photos --captions=captions.csv

Flags on the command line come after the flagfile and override it; a resumed
run has the flags it was started with. The run folder afterwards holds
checkpoints, metrics.json, curves.png, TensorBoard event files and a
SavedModel that takes raw captions.
"""

import sys

from absl import flags as absl_flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import runs, tasks
from tbnets.evaluation.tables import format_table
from tbnets.flags import command_line
from tbnets.flags import help as flags_help
from tbnets.flags.settings import as_flagfile_line
from tbnets.training import loop, summary

FLAGS = absl_flags.FLAGS

command_line.define_run_flags(tasks.TASKS, tasks.BUILDERS)
absl_flags.adopt_module_key_flags(command_line)
absl_flags.DEFINE_multi_string(
    "example_query",
    [],
    "Sentence to ask the exported model on the test split",
)
absl_flags.DEFINE_bool(
    "resume",
    False,
    "Continue the run of --run_dir, with its own flags where none are given.",
)


def checked_settings():
    """Returns the settings of the run, and a line on flags not read."""
    before = None
    if FLAGS.resume:
        before = runs.settings_before(command_line.run_dir())
    settings = command_line.settings(before)
    task = tasks.open_task(settings)  # Names an unknown task or model.
    if before is None:
        take_recipe(settings, task)
    unread = command_line.check_read(
        settings,
        tasks.groups_read(settings),
        tasks.readers_of_groups(),
        tasks.fixed_flags(settings),
    )
    asked = command_line.on_command_line(["example_query"])
    if asked and not settings.export:
        raise InputError(
            "`--example_query` must come with --export: the exported model "
            f"answers. Received: --example_query={FLAGS.example_query[0]} "
            "with --noexport. Leave one of them out."
        )
    return settings, unread


def take_recipe(settings, task):
    """Gives flags that are not given what suits the data; says which."""
    title, values = task.data.recipe
    taken = command_line.fill(settings, values)
    if taken:
        line = (as_flagfile_line(*item).strip() for item in taken.items())
        print(f"recipe for {title}: {' '.join(line)}")


def fit(session, train):
    """Trains; a run that is stopped says how it goes on."""
    try:
        loop.fit(session, train)
    except KeyboardInterrupt:
        print(
            "\nstopped; finished epochs are kept. Go on with: python "
            f"tools/train.py --resume --run_dir={session.run_dir}",
            file=sys.stderr,
        )
        raise


def main(argv):
    """Trains by the flags."""
    if len(argv) > 1:
        raise InputError(
            "`train.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    loop.make_reproducible()
    settings, unread = checked_settings()
    folder = runs.start(settings, FLAGS.resume)
    if runs.finished(settings, folder):
        print(runs.finished(settings, folder))
        return
    queries = FLAGS.example_query if settings.export else []
    session, train = runs.prepare(settings, folder, queries)
    if settings.export and not queries:
        queries = session.task.exporter.queries
    print(summary.describe(session, train))
    if unread:
        print(f"not read  {unread}")
    fit(session, train)
    report = runs.finish(session)
    split = "test" if "test" in report else "dev"
    title = f"{split}, epoch {report['best_epoch']}"
    print(format_table(report[split], title))
    print(f"learning curves  {folder / 'curves.png'}")
    if settings.export:
        saved_model = runs.export(session)
        print(f"SavedModel       {saved_model}")
        if queries:
            answer = session.task.exporter.answer
            print(answer(saved_model, queries, folder))


if __name__ == "__main__":
    startup.run_tool(main, flags_help.run_sections)
