"""Trains a network, evaluates its best epoch and exports it.

    python tools/train.py --flagfile=configs/quickstart.flags
    python tools/train.py --flagfile=configs/quickstart.flags --resume

Flags on the command line come after the flagfile and override it. The run
folder afterwards holds checkpoints, metrics.json, curves.png, TensorBoard
event files and a SavedModel that takes raw captions.
"""

from absl import flags as absl_flags

from tbnets import startup

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import runs
from tbnets import tasks
from tbnets.flags import command_line
from tbnets.flags import help as flags_help
from tbnets.training import loop

FLAGS = absl_flags.FLAGS

command_line.define_run_flags(tasks.TASKS, tasks.BUILDERS)
absl_flags.adopt_module_key_flags(command_line)
absl_flags.DEFINE_multi_string(
    "example_query",
    [],
    "Sentence to ask the exported model on the test split",
)
absl_flags.DEFINE_bool("resume", False, "Continue the run of --run_dir.")


def main(argv):
    """Trains by the flags."""
    if len(argv) > 1:
        raise ValueError(
            "`train.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    loop.make_reproducible()
    settings = command_line.settings()
    tasks.open_task(settings)  # Names an unknown task or model.
    unread = command_line.check_read(
        settings, tasks.groups_read(settings), tasks.readers_of_groups()
    )
    folder = runs.start(settings, FLAGS.resume)
    session, train = runs.prepare(settings, folder)
    print(runs.describe(session, train))
    if unread:
        print(f"not read  {unread}")
    loop.fit(session, train)
    report = runs.finish(session)
    title = f"test, epoch {report['best_epoch']}"
    print(session.task.table(report["test"], title))
    print(f"learning curves  {folder / 'curves.png'}")
    if settings.export:
        saved_model = runs.export(session)
        print(f"SavedModel       {saved_model}")
        if FLAGS.example_query:
            queries = FLAGS.example_query
            print(session.task.answer(saved_model, queries, folder))


if __name__ == "__main__":
    startup.run_tool(main, flags_help.run_sections)
