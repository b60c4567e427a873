r"""Builds a model for the model zoo from a finished run (docs/zoo.md).

  python tools/make_zoo.py --run_dir=runs/scenes_embedding \
      --name=scenes_embedding --card=card.md

Updates the generated part of a card, exports a model again and compares the
outputs of both models, or writes the README of the zoo:

  python tools/make_zoo.py --name=scenes_embedding
  python tools/make_zoo.py --name=scenes_embedding --again
  python tools/make_zoo.py --table

Adds a LiteRT model, which is calibrated on 100 training photos
(docs/on_device.md), or measures which search results are doubtful:

  python tools/make_zoo.py --name=flickr8k_photos --litert=int8 \
      --images=flickr8k/images --captions=flickr8k/dataset_flickr8k.json
  python tools/make_zoo.py --name=flickr8k_photos --images=flickr8k/images \
      --dev_captions=flickr8k/dataset_flickr8k.json

Exports a run for phrase localization, or without its image networks
(tbnets/serving/assembled.py):

  python tools/make_zoo.py --run_dir=runs/flickr8k_infonce \
      --name=flickr8k_phrases --cnn_weights=imagenet --card=card.md \
      --regions=features/averages_lite0.flags --phrases=flickr8k/entities \
      --choice=expected_overlap --choice_temperature=0.04 \
      --choice_area_exponent=0.5
  python tools/make_zoo.py --run_dir=runs/large --name=large --branches \
      --images=flickr8k/images --card=card.md
"""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import shutil
import sys
import tempfile

from zoo_making import alike, cards
from zoo_making.lite import add_litert
from zoo_making.served import (
    branch_endpoints,
    phrase_scores,
    served_scores,
)

from tbnets import cli
from tbnets.checks import rounded
from tbnets.cli.data_flags import (
    ChoiceFlags,
    check_choice_flags,
    choice_arguments,
)
from tbnets.data.store.features import SIDE_BY_SIDE
from tbnets.errors import InputError
from tbnets.files import CheckedFile, new_folder, write_json, write_text
from tbnets.serving import assembled, checksums, doubt, zoo
from tbnets.serving.checksums import FOLDER, KINDS, MODEL
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.tasks.localization import endpoints_of_phrases
from tbnets.tasks.photo_readers import start_at_photo
from tbnets.tasks.phrase_regions import with_regions
from tbnets.tasks.settings.flag import (
    Amount,
    changed,
    check_pairs,
    configs_folder,
    flag,
    must_come_with,
)
from tbnets.tasks.settings.records import flagfile_lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ChoiceFlags):
    """Flags for the run, the model and its card."""

    run_dir: str = flag("", "Folder of the run.")
    name: str = flag("", "Name of the model.")
    card: str = flag(
        "",
        "Markdown file with a title, a sentence and the sections 'Data and "
        "terms' and 'Not for'; default: the current card of the model.",
    )
    cnn_weights: str = flag(
        "", "As in tbnets export: lets a run on image features take photos."
    )
    branches: bool = flag(
        False,
        "For a run on image features: keep only the trained weights; the "
        "first use adds the image networks that the `photos` extra installs, "
        "and the sentence encoder of --text_encoder=minilm,mean.",
    )
    regions: str = flag(
        "",
        "As in tbnets export: lets a run of photos and captions localize "
        "phrases; with --cnn_weights, --phrases and --choice.",
    )
    phrases: str = flag(
        "", "With --regions: phrases with boxes, to measure the model."
    )
    images: str = flag(
        "",
        "Folder of the test split's photos, if the run's flags name none.",
    )
    data_root: str = flag("", "New base folder of relative data paths.")
    dev_captions: str = flag(
        "", "As in tbnets export; with --name and --images."
    )
    language: str = flag("English", "Language of the sentences or phrases.")
    again: bool = flag(
        False, "Export --name again; keep its weights and metrics."
    )
    litert: str = flag(
        "",
        "Add a LiteRT model to --name; with --images and --captions.",
        choices=("", *KINDS),
    )
    captions: str = flag(
        "", "With --litert: captions with the splits train and test."
    )
    most_lost: Amount = flag(
        0.2,
        "Largest allowed loss of recall sum by half precision; for phrase "
        "localization, the sum of R@1, 5 and 10.",
    )
    zoo: str = flag("", "Folder of the zoo; default: the package's zoo.")
    table: bool = flag(False, "Write the README of the zoo.")


def make(options, folder):
    """Exports and evaluates a run, and writes the files of the model."""
    lines = []

    def adjust(settings):
        lines.extend(flagfile_lines(settings))
        if options.images:
            settings = settings.replace(images=options.images)
        if options.branches:
            return settings.replace(cnn_weights="")
        return start_at_photo(settings, options.cnn_weights)

    session = runs.open_run(
        options.run_dir, data_root=options.data_root, adjust=adjust
    )
    path = pathlib.Path(options.run_dir, cards.METRICS)
    report = CheckedFile(path).json()
    fitted, choice, extras = None, choice_arguments(options), {}
    if options.branches:
        extras["endpoints"] = branch_endpoints(
            session.task, session.network, session.state.fitted
        )
    if options.regions:
        fitted = with_regions(session, options.regions)
        extras = {
            "metadata": {"choice": choice},
            "endpoints": endpoints_of_phrases(
                session.task, session.network, fitted
            ),
        }
    runs.export(session, folder / "1", fitted, half_precision=True, **extras)
    model = opened(folder, options.branches)
    split = report["test_split"]["name"]
    if options.regions:
        places = options.phrases, options.regions
        pair = phrase_scores(session, model, split, *places)
        report["test"], scores = (x.metrics(**choice) for x in pair)
    else:
        scores = served_scores(session.task, model, split).metrics()
    best = session.task.best_metric
    sums = [cards.recall_sum(x, best) for x in (report["test"], scores)]
    check_loss(options, *sums)
    today = datetime.date.today().isoformat()
    metrics = cards.describe(report, model, scores, today, best)
    metrics |= {"command": command(options), "language": options.language}
    if options.branches:
        write_json(folder / checksums.ANSWERS, assembled.answers_of(model))
        made_by = session.state.fitted["image_features_made_by"]
        parts = made_by.get(SIDE_BY_SIDE, [made_by])
        metrics["networks"] = [part["cnn"] for part in parts]
        metrics["sentence_encoder"] = bool(session.settings.texts.preset)
    write_json(folder / cards.METRICS, metrics)
    lines = cards.portable_flags("".join(lines).splitlines(), options.name)
    (folder / f"{options.name}.flags").write_text(
        "".join(f"{line}\n" for line in lines), "utf-8", newline="\n"
    )


def opened(folder, is_part):
    """Loads the model in a folder, and adds its networks if `is_part`."""
    if not is_part:
        return load_saved_model(folder / "1")
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "1")
        return load_saved_model(assembled.add_networks(folder, path))


def command(options):
    """Returns the command that trains the model."""
    name = options.name
    for known in (pathlib.Path(options.run_dir).name, name):
        if (configs_folder() / f"{known}.flags").is_file():
            return f"tbnets train --flagfile=configs/{known}.flags"
    return f"tbnets train --flagfile=model_zoo/{name}/{name}.flags"


def check_loss(options, before, after):
    """Raises an error if half precision lowers the recall sum too much."""
    print(
        f"recall sum  {rounded(after, 2)} as exported, "
        f"{rounded(before, 2)} in the run"
    )
    lost = before - after
    if lost > options.most_lost:
        raise InputError(
            "--most_lost",
            "be at least the loss of recall sum by half precision",
            f"--most_lost={options.most_lost}, loss={rounded(lost, 2)}",
            "Raise it to accept this loss.",
        )


def check_size(folder):
    """Raises an error if a model is larger than `cards.MOST_BYTES`."""
    num_bytes = zoo.size(folder)
    print(f"size        {num_bytes / 1e6:.2f} MB")
    if num_bytes > cards.MOST_BYTES:
        raise InputError(
            "--run_dir",
            f"be a run whose model fits into {cards.MOST_BYTES / 1e6:g} MB",
            f"{num_bytes / 1e6:.2f} MB",
            "Train a network with fewer weights.",
        )


@contextlib.contextmanager
def remade(options, target, is_copied=False):
    """Yields a new folder for the files of a model.

    After the block, writes the card and the checksums, and replaces `target`.
    The new folder is empty or, if `is_copied`, a copy of `target`.
    """
    text = cards.own_text(options.card or target / "README.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replaced_folder(target) as folder:
        if is_copied:
            shutil.copytree(target, folder, dirs_exist_ok=True)
        yield folder
        metrics = CheckedFile(folder / cards.METRICS).json()
        card = cards.render_card(options.name, text, metrics)
        (folder / "README.md").write_text(card, "utf-8", newline="\n")
        checksums.write_checksums(folder)
        check_size(folder)


@contextlib.contextmanager
def replaced_folder(path):
    """Yields a new folder, which replaces `path` if the block succeeds."""
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    with new_folder(new) as folder:
        yield folder
    shutil.rmtree(path, ignore_errors=True)
    os.rename(new, path)


def export_again(options, target):
    """Exports an existing zoo model again, with the current exporter."""
    zoo.check_files(target)
    with remade(options, target) as folder:
        for name in (cards.METRICS, f"{options.name}.flags"):
            shutil.copy(target / name, folder / name)
        _, differs = alike.export_again(target, folder / "1")
        if (target / FOLDER).is_dir():
            shutil.copytree(target / FOLDER, folder / FOLDER)
        print(f"outputs     differ by {differs:.1e} at most")
        metrics = CheckedFile(folder / cards.METRICS).json()
        answers = target / checksums.ANSWERS
        model = opened(folder, answers.is_file())
        if answers.is_file():
            shutil.copy(answers, folder)
            assembled.check_answers(model, answers)
        bounds = cards.bounds(model)
        write_json(folder / cards.METRICS, {**metrics, **bounds})


def add_lite(options, target):
    """Adds a LiteRT model to a model of the zoo, and updates its card."""
    zoo.check_files(target)
    with remade(options, target, is_copied=True) as folder:
        shutil.rmtree(folder / FOLDER / options.litert, ignore_errors=True)
        places = pathlib.Path(options.images), options.captions
        measured = add_litert(folder, options.litert, *places)
        metrics = CheckedFile(folder / cards.METRICS).json()
        print(
            f"recall sum  {rounded(measured['recall_sum'], 2)} by LiteRT, "
            f"{rounded(cards.recall_sum(metrics['test']), 2)} as exported"
        )
        metrics.setdefault("litert", {})[options.litert] = {
            "recall_sum": measured["recall_sum"],
            "size": zoo.size(folder / FOLDER / options.litert),
        }
        write_json(folder / cards.METRICS, metrics)


def renew_card(options, target):
    """Updates a model's card if no other file has changed.

    With --dev_captions, also updates the similarity of likely results.
    """
    recorded = checksums.read_checksums(target) | {"README.md": ""}
    files = {name: recorded[name] for name in recorded if name != "README.md"}
    changed = [
        *checksums.differences(target, files),
        *sorted(checksums.model_files(target).keys() - recorded.keys()),
    ]
    if changed:
        raise InputError(
            "--name",
            "be a model with changes only in its card",
            f"--name={options.name}: {changed[0]}",
            "Set --run_dir to make the model again.",
        )
    with remade(options, target, is_copied=True) as folder:
        if options.dev_captions:
            model = opened(folder, (folder / checksums.ANSWERS).is_file())
            likely = doubt.measure(model, options.dev_captions, options.images)
            for path in (
                folder / "1" / checksums.METADATA_FILE,
                *folder.glob(f"{FOLDER}/*/{MODEL}"),
            ):
                record = CheckedFile(path).json()
                record["metadata"] |= likely
                write_json(path, record)


def check_flags(options):
    """Raises an error if a flag is missing or has no effect."""
    check_choice_flags(options)
    for name in ("run_dir", "card", "again", "dev_captions", "litert"):
        if name in changed(options) and not options.name:
            raise must_come_with(options, name, "--name")
    check_pairs(options, {"litert": "captions", "captions": "litert"})
    check_pairs(options, {"litert": "images"})
    check_pairs(options, {"dev_captions": "images"})
    if options.again and options.run_dir:
        raise must_come_with(options, "again", "--name and without --run_dir")
    if not (options.name or options.table):
        raise InputError(
            "--name",
            "be set, or --table",
            "--name=",
            "Add for example --name=scenes_embedding.",
        )
    if options.name and not options.name.isidentifier():
        raise InputError(
            "--name",
            "be letters, digits and underscores",
            f"--name={options.name}",
            "Choose another name.",
        )


def main(options):
    """Makes models or exports them again, or writes cards and the table."""
    check_flags(options)
    folder = pathlib.Path(options.zoo or zoo.folder())
    if options.name:
        target = folder / options.name
        if options.run_dir:
            with remade(options, target) as new:
                make(options, new)
        elif options.litert:
            add_lite(options, target)
        elif options.again:
            export_again(options, target)
        else:
            renew_card(options, target)
        zoo.check_files(target)
        print(f"model       {target}")
    if options.table:
        page = cards.render_table(folder)
        write_text(folder / "README.md", page)
        print(f"table       {folder / 'README.md'}")


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
