r"""Makes a folder of the model zoo from a finished run.

  python tools/make_zoo.py --run_dir=runs/scenes_embedding \
      --name=scenes_embedding --card=card.md

exports the run's best epoch with weights as float16, measures that model on
the run's test split from photos or features and sentences, and writes card,
flags, metrics and checksums beside it. A model that lost more than --most_lost
of the run's recall sum, or that takes too much space, is not made. What is
written by hand in the card of an earlier version is kept; --card names it
anew.

  python tools/make_zoo.py --name=scenes_embedding

writes the rest of a card again after the part by hand was edited,

  python tools/make_zoo.py --name=scenes_embedding --again

exports a model of the zoo once more by the exporter of today, weights and
measures as they are: what is mended in the exporter reaches it, and its
answers are compared. And

  python tools/make_zoo.py --table

writes the README of the zoo.

A run of phrase localization is measured from photos, boxes and phrases; for
photos that its flags do not name there is --images:

  python tools/make_zoo.py --run_dir=runs/entities --name=entities \
      --cnn_weights=imagenet --images=flickr8k/images --card=card.md
"""

import datetime
import pathlib
import shutil

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import reexport, runs, tasks
from tbnets.files import new_folder, write_json, write_text
from tbnets.flags import settings as settings_files
from tbnets.rounding import rounded
from tbnets.serving import zoo, zoo_card, zoo_metrics
from tbnets.serving.served import load_saved_model
from tbnets.tasks.readers import start_at_photo

_RUN = flags.DEFINE_string("run_dir", "", "Folder of the run.")
_NAME = flags.DEFINE_string("name", "", "Name of the model.")
_CARD = flags.DEFINE_string(
    "card",
    "",
    "Markdown file with a title, a sentence and the sections 'Data and terms' "
    "and 'Not for'; by default the card that is there.",
)
_WEIGHTS = flags.DEFINE_string(
    "cnn_weights",
    "",
    "As in tools/export.py: makes a run on features start at the photo.",
)
_IMAGES = flags.DEFINE_string(
    "images",
    "",
    "Folder of the test split's photos, where the run's flags name none.",
)
_DATA_ROOT = flags.DEFINE_string(
    "data_root", None, "Folder that relative data paths start from now."
)
_AGAIN = flags.DEFINE_bool(
    "again", False, "Export --name once more, weights and measures as they are."
)
_MOST_LOST = flags.DEFINE_float(
    "most_lost",
    0.2,
    "Recall sum that half precision may cost at most; of phrase localization, "
    "R@1, 5 and 10 added.",
    lower_bound=0,
)
_ZOO = flags.DEFINE_string(
    "zoo", None, "Folder of the zoo; by default that of the package."
)
_TABLE = flags.DEFINE_bool("table", False, "Write the README of the zoo.")


def make(folder, text):
    """Writes a model's files into an empty folder.

    Args:
        folder: `pathlib.Path`.
        text: the part of the card that is written by hand.
    """
    session = runs.open_run(_RUN.value, data_root=_DATA_ROOT.value)
    lines = settings_files.flagfile_lines(
        session.settings, tasks.groups_read(session.settings)
    )
    start_at_photo(session.settings, _WEIGHTS.value)
    session.settings.images = _IMAGES.value or session.settings.images
    report = zoo_metrics.read_report(pathlib.Path(_RUN.value, zoo_card.METRICS))
    runs.export(session, folder / "1", half_precision=True)
    model = load_saved_model(folder / "1")
    split = report["test_split"]["name"]
    [evaluator, *_] = session.task.evaluators
    scores = evaluator.served_scores(model, split).metrics()
    check_loss(scores, report)
    metrics = zoo_card.describe(
        report, model, scores, datetime.date.today().isoformat()
    )
    metrics["command"] = command()
    write_json(folder / zoo_card.METRICS, metrics)
    lines = zoo_card.portable_flags("".join(lines).splitlines(), _NAME.value)
    (folder / f"{_NAME.value}.flags").write_text(
        "".join(f"{line}\n" for line in lines), "utf-8", newline="\n"
    )
    write_card(folder, text)
    check_size(folder)


def command():
    """Returns what a user types to train the same."""
    root = pathlib.Path(__file__).resolve().parent.parent
    name = _NAME.value
    known = [f"configs/{pathlib.Path(_RUN.value).name}.flags"]
    known += [f"configs/{name}.flags", f"model_zoo/{name}/{name}.flags"]
    flagfile = next((x for x in known if (root / x).is_file()), known[-1])
    return f"python tools/train.py --flagfile={flagfile}"


def check_loss(scores, report):
    """Refuses a model that half precision has harmed."""
    before, after = map(zoo_card.recall_sum, (report["test"], scores))
    print(
        f"recall sum  {rounded(after, 2)} as exported, "
        f"{rounded(before, 2)} in the run"
    )
    lost = before - after
    if lost > _MOST_LOST.value:
        raise InputError(
            "`--most_lost` must be what half precision may cost. Received: "
            f"--most_lost={_MOST_LOST.value}, and it costs {rounded(lost, 2)} "
            "of the recall sum. Raise it if that is worth the space."
        )


def check_size(folder):
    """Refuses a model that is too large for a repository."""
    num_bytes = zoo_card.size(folder)
    print(f"size        {num_bytes / 1e6:.2f} MB")
    if num_bytes > zoo_card.MOST_BYTES:
        raise InputError(
            "`--run_dir` must be a run whose model fits into "
            f"{zoo_card.MOST_BYTES / 1e6:g} MB. Received: {num_bytes / 1e6:.2f}"
            " MB. Train one with fewer weights."
        )


def write_card(folder, text):
    """Writes README.md, and the checksums of all files."""
    metrics = zoo_metrics.read_metrics(folder / zoo_card.METRICS)
    card = zoo_card.render_card(_NAME.value, text, metrics)
    (folder / "README.md").write_text(card, "utf-8", newline="\n")
    zoo.write_checksums(folder)


def make_model(target):
    """Makes a model; one that is there stays until the new one is whole."""
    text = zoo_card.own_text(_CARD.value or target / "README.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target, replace=True) as folder:
        make(folder, text)


def export_again(target):
    """Exports a model of the zoo by the exporter of today."""
    zoo.check_files(target)
    text = zoo_card.own_text(_CARD.value or target / "README.md")
    with new_folder(target, replace=True) as folder:
        for name in (zoo_card.METRICS, f"{_NAME.value}.flags"):
            shutil.copy(target / name, folder / name)
        _, differs = reexport.export_again(target, folder / "1")
        print(f"answers     differ by {differs:.1e} at most")
        metrics = zoo_metrics.read_metrics(folder / zoo_card.METRICS)
        bounds = zoo_card.bounds(load_saved_model(folder / "1"))
        write_json(folder / zoo_card.METRICS, {**metrics, **bounds})
        write_card(folder, text)
        check_size(folder)


def renew_card(target):
    """Writes the card again; all other files must be as they were."""
    written = {"README.md", zoo.CHECKSUMS}
    wanted = zoo.read_checksums(target)
    text = zoo_card.own_text(_CARD.value or target / "README.md")
    with new_folder(target, replace=True) as folder:
        shutil.copytree(target, folder, dirs_exist_ok=True)
        write_card(folder, text)
        found = zoo.read_checksums(folder)
        changed = [
            name
            for name in sorted({*wanted, *found} - written)
            if wanted.get(name) != found.get(name)
        ]
        if changed:
            raise InputError(
                "`--name` must be a model of which the card alone was changed. "
                f"Received: --name={_NAME.value}, where {changed[0]} was too. "
                "Give --run_dir to make it anew."
            )


def check_flags():
    """Refuses flags that ask for nothing."""
    if not _NAME.value and (_RUN.value or _CARD.value or not _TABLE.value):
        raise InputError(
            "`--name` must be given, or --table alone. Received: --name=, "
            f"--run_dir={_RUN.value}. Add for example --name=scenes_embedding."
        )
    if _AGAIN.value and (_RUN.value or not _NAME.value):
        raise InputError(
            "`--again` must come with --name, and without --run_dir. Received: "
            f"--again --name={_NAME.value} --run_dir={_RUN.value}. Leave one "
            "of them out."
        )
    if _NAME.value and not _NAME.value.isidentifier():
        raise InputError(
            "`--name` must be letters, digits and underscores. Received: "
            f"--name={_NAME.value}. Choose another."
        )


def main(argv):
    """Makes a model, a card or the table."""
    if len(argv) > 1:
        raise InputError(
            f"`make_zoo.py` takes flags only. Received: {' '.join(argv[1:])}. "
            "Write --flag=value."
        )
    check_flags()
    folder = pathlib.Path(_ZOO.value or zoo.folder())
    if _NAME.value:
        target = folder / _NAME.value
        if _RUN.value:
            make_model(target)
        elif _AGAIN.value:
            export_again(target)
        else:
            renew_card(target)
        zoo.check_files(target)
        print(f"model       {target}")
    if _TABLE.value:
        page = zoo_card.render_table(folder)
        write_text(folder / "README.md", page)
        print(f"table       {folder / 'README.md'}")


if __name__ == "__main__":
    startup.run_tool(main)
