"""Writes the card, metrics and flags of a zoo model, and the zoo's table.

The part of a card before `MARK` is written by hand; the rest is generated from
`metrics.json`.
"""

import pathlib
import re
import textwrap

from tbnets.checks import per_cent, rounded
from tbnets.errors import InputError
from tbnets.evaluation import tables
from tbnets.features.text_presets import INSTALL
from tbnets.files import CheckedFile
from tbnets.serving.zoo import METRICS, size

MARK = "<!-- From here on written by tools/make_zoo.py. -->"
SECTIONS = ("## Data and terms", "## Not for")
"""Headings that the hand-written part must have."""
MOST_BYTES = 40_000_000
TEXTS = dict(
    re.findall(
        r"<!-- ([a-z ]+) -->\n(.*?)<!-- end -->",
        pathlib.Path(__file__).with_name("texts.md").read_text("utf-8"),
        re.S,
    )
)
"""Parts of texts.md by name."""
_WITH = {
    "photos": " and sentences",
    "features": " and sentences",
    "photos with boxes": " and phrases",
    "features of regions": " and phrases",
}
"""Words for the text input of a model, by its image input."""
_MEASURED_IMAGES = "Recall in per cent and median rank "
_MEASURED_REGIONS = (
    "Recall at IoU 0.5 over the regions that are proposed, what it could be\n"
    "at most, and the mean average precision of phrases, all in per cent,\n"
)
_EXPECTED = f"a title, a sentence, and the sections {', '.join(SECTIONS)}"


def own_text(path):
    """Reads the hand-written part of a card, before `MARK`, and checks it."""
    text = "\n".join(CheckedFile(path).lines()[0]).partition(MARK)[0].strip()
    missing = [heading for heading in SECTIONS if f"\n{heading}\n" not in text]
    if missing or not re.match(r"# .+\n\n[^#\n]", text):
        raise InputError(
            "card",
            f"be a Markdown file with {_EXPECTED}",
            f"card={path}, without {', '.join(missing) or 'the beginning'}",
            "Add them: users need them to choose a model.",
        )
    return text


def summary(text):
    """Returns the first paragraph of a card, on one line."""
    return " ".join(text.split("\n\n")[1].split())


def recall_sum(measures, best=""):
    """Returns the sum of recall at 1, 5 and 10 over directions, in per cent.

    If `measures` contains no recall, returns the metric named `best`.
    """
    if tables.are_of_regions(measures):
        names = [f"phrase_to_region/recall_at_{k}" for k in (1, 5, 10)]
        return sum(100 * measures[name] for name in names)
    return measures["recall_sum" if "recall_sum" in measures else best]


def _recalls(cutoffs):
    return [(f"R@{k}", f"recall_at_{k}", per_cent) for k in cutoffs]


def columns(metrics: dict) -> list[tuple]:
    """Returns the columns of a table: (title, metric, format function)."""
    if tables.are_of_retrieval(metrics):
        entries = [
            *_recalls(tables.recall_cutoffs(metrics)),
            ("MedR", "median_rank", "{:g}".format),
        ]
        both_ways = []
        for direction in tables.DIRECTIONS[:2]:
            label = direction.replace("_", " ") + " "
            for title, name, write in entries:
                both_ways.append((label + title, f"{direction}/{name}", write))
                label = ""
        return [*both_ways, ("recall sum", "recall_sum", rounded)]
    if tables.are_of_regions(metrics):
        entries = [
            *_recalls((1, 5, 10)),
            ("bound", "upper_bound", per_cent),
            ("mAP", "mean_average_precision", per_cent),
            ("phrases", "num_queries", "{:.0f}".format),
        ]
        return [(t, f"{tables.REGIONS}/{n}", write) for t, n, write in entries]
    return [(name, name, "{:.4g}".format) for name in metrics]


def markdown_table(rows, extra):
    """Returns a Markdown table of the metrics of models.

    Each row is (name, metrics, *cells), with the same metrics in all rows.
    `extra` maps the titles of the columns of cells to their alignment.
    """
    entries = columns(rows[0][1])
    titles = ["model", *(title for title, _, _ in entries), *extra]
    rule = ["---", *["---:"] * len(entries), *extra.values()]
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(rule)}|"]
    for name, metrics, *cells in rows:
        numbers = [write(metrics[key]) for _, key, write in entries]
        lines.append(f"| {' | '.join([name, *numbers, *cells])} |")
    return "\n".join(lines)


def render_card(name, text, metrics):
    """Returns the text of a whole card.

    `text` is the hand-written part (`own_text`), and `metrics` is the content
    of `metrics.json` (`describe`).
    """
    test, measured, total = metrics["test"], "Metrics ", ""
    if tables.are_of_regions(test) or tables.are_of_retrieval(test):
        is_of_images = tables.are_of_retrieval(test)
        measured = _MEASURED_IMAGES if is_of_images else _MEASURED_REGIONS
        total = TEXTS["run"].format(
            recall_sum=rounded(metrics["run_recall_sum"])
        )
    networks = dict.fromkeys(metrics.get("networks", []))
    encoder = TEXTS["encoder"] if metrics.get("sentence_encoder") else ""
    values = {
        "name": name,
        "networks": ", ".join(networks),
        "encoder": encoder.format(install=INSTALL),
    }
    takes = metrics["takes"] if metrics["takes"] in _WITH else "any"
    split = dict(metrics["test_split"])
    return TEXTS["card"].format(
        **values,
        text=text,
        measured=measured,
        split=split.pop("name"),
        counts=", ".join(f"{value} {key}" for key, value in split.items()),
        table=markdown_table([(name, test)], {}),
        total=total,
        usage=TEXTS[f"use {takes}"].format(**values),
        without=TEXTS["part" if networks else "whole"].format(**values)
        + "".join(
            TEXTS["litert"].format(
                **values,
                kind=kind,
                size=f"{lite['size'] / 1e6:.1f}",
                recall_sum=rounded(lite["recall_sum"]),
            )
            for kind, lite in metrics.get("litert", {}).items()
        ),
        command=metrics["command"],
        history=_history(metrics),
    )


def _history(metrics):
    versions = metrics["versions"]
    minutes = max(1, round(metrics["train_seconds"] / 60))
    texts = _WITH.get(metrics["takes"], "")
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
        text += f" Photos of more than {pixels:g} million pixels are rejected."
    return textwrap.fill(text, 79)


def bounds(model):
    """Returns the input limits of a `Served` model for `metrics.json`."""
    names = ("max_tokens", "max_pixels")
    return {name: model.metadata.get(name) for name in names}


def describe(report, model, scores, date, best=""):
    """Returns the content of a model's `metrics.json`.

    `report` is the `metrics.json` of the run. `model` is the exported model, a
    `served.Served`, and `scores` are its metrics on the test split. `best` is
    the metric to use if there is no recall.
    """
    if model.has("embed_phrases"):
        with_photos, without = "photos with boxes", "features of regions"
    elif model.has("embed_image"):
        with_photos, without = "photos", "features"
    else:
        with_photos = without = ", ".join(model.inputs("serving_default"))
    takes = with_photos if model.takes_photos else without
    names = ("best_epoch", "epochs", "train_seconds", "dev", "test_split")
    return {
        "takes": takes,
        "embedding_dim": model.embedding_dim or 0,
        **bounds(model),
        "test": scores,
        "run_recall_sum": recall_sum(report["test"], best),
        **{key: report[key] for key in names},
        "versions": report["versions"],
        "date": date,
    }


def render_table(folder):
    """Returns the README of the zoo in a folder, with a row per model."""
    groups = {}
    for path in sorted(pathlib.Path(folder).glob(f"*/{METRICS}")):
        metrics, model = CheckedFile(path).json(), path.parent
        row = (
            f"[{model.name}]({model.name}/README.md)",
            metrics["test"],
            summary(own_text(model / "README.md")),
            f"{size(model) / 1e6:.1f} MB",
            metrics["date"],
        )
        kind = tuple(title for title, _, _ in columns(metrics["test"]))
        groups.setdefault(kind, []).append(row)
    parts, last = [TEXTS["introduction"]], []
    for rows in groups.values():
        table = markdown_table(rows, _ABOUT_MODELS)
        if tables.are_of_retrieval(rows[0][1]):
            parts.append(table)
        elif tables.are_of_regions(rows[0][1]):
            last += [TEXTS["regions"], table]
        else:
            last += ["\n## Others\n", table]
    return "\n".join([*parts, *last, ""])


_ABOUT_MODELS = {"what it is": "---", "size": "---:", "date": "---"}


def portable_flags(lines, name):
    """Replaces absolute paths in the lines of a run's flag file.

    An absolute path becomes `data/NAME`, or `runs/NAME` in the flag --scenes,
    where NAME is the last component of the path.
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
    path = pathlib.PurePath(place)
    if not path.is_absolute():
        return place
    return f"{'runs' if flag == '--scenes' else 'data'}/{path.name}"
