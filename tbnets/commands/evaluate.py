r"""Measures image-text retrieval, of a run or on saved embeddings.

A run of tools/train.py, on one of its splits:

  python tools/evaluate.py --run_dir=runs/quickstart --split=test

Whether a run of photos and captions finds what phrases name in a photo,
though it never saw a box:

  python tools/evaluate.py --run_dir=runs/flickr8k_infonce \
      --phrases=flickr8k/entities --regions=features/crops_lite0.flags \
      --choice=expected_overlap --choice_area_exponent=0.5

Two runs taken together, by the weighted sum of their distances (Wang et al.
2018, Eq. 8):

  python tools/evaluate.py --run_dir=runs/embedding \
      --combine_with=runs/similarity --combine_weight=0.3

A map of what lies near what: photos, sentences and noun phrases of some of
the images, as a picture (needs the extra: pip install "tbnets[map]"):

  python tools/evaluate.py --run_dir=runs/quickstart --map=map.png

A pretrained model of Keras Hub that embeds photos and captions in one space,
as it is (needs the extra: pip install "tbnets[hub]"):

  python tools/evaluate.py --hub=clip_vit_base_patch32 --images=photos \
      --captions=captions.csv --prompt="a photo of {}"

Embeddings of a data set by any model, as they are: those of a split are found
by their ids, and divided by their lengths:

  python tools/evaluate.py --captions=flickr8k/dataset_flickr8k.json \
      --image_features=clip_images.npy --text_features=clip_texts.npy

Embeddings of any model, from files alone:

  python tools/evaluate.py \
      --image_embeddings=images.npy \
      --text_embeddings=captions.npy \
      --caption_to_image=caption_to_image.npy \
      --json=metrics.json

images.npy is [num_images, dim] and captions.npy [num_captions, dim], both with
rows of length 1, which --normalize gives them: scores are inner products.
caption_to_image.npy holds, for each caption, the row of its image, from 0; a
text file with one number a line will do. The order of the rows is free, and so
is the number of captions per image.

Prints recall at 1, 5 and 10, median and mean rank in both directions and from
captions to captions; of phrases, recalls of regions (docs/evaluation.md).
"""

import dataclasses
import functools
import pathlib
from typing import Annotated

import numpy as np

from tbnets import files, startup
from tbnets.commands import checks
from tbnets.errors import InputError
from tbnets.evaluation import arrays, protocols, tables
from tbnets.evaluation.choices import CHOOSING
from tbnets.flags.data_groups import Captions
from tbnets.flags.flag import (
    Limits,
    Share,
    changed,
    flag,
    flags_of,
    must_come_with,
)
from tbnets.pictures import space_map

MAP_CAPTIONS = 5
_OF_A_SPLIT = ("split", "data_root", "save_embeddings", "combine_with", "map")
_OF_PHRASES = ("region_phrase_ranking", *CHOOSING)
_PHRASES_OF_RUN = ("phrases", "regions")
_OF_DATA = (
    *("captions", "captions_format", "split_lists", "scenes", "num_scenes"),
    "images",
)
WAYS = {
    "run_dir": (
        *(*_OF_A_SPLIT, "checkpoint"),
        *(*_OF_PHRASES, *_PHRASES_OF_RUN),
    ),
    "hub": (*_OF_A_SPLIT, *_OF_DATA, "cache", "prompt"),
    "image_features": (*_OF_A_SPLIT, *_OF_DATA, "text_features"),
    "image_embeddings": (
        *("text_embeddings", "caption_to_image", "normalize"),
        "positive_pairs",
    ),
}
"""Flag that says what is measured -> those that are read with it alone."""
OF_TASKS = ("protocol", "text_to_text", *_OF_PHRASES)
"""Flags that are read by some tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfData(Captions):
    """A data set, and embeddings of it."""

    hub: str = flag(
        "",
        "Preset of Keras Hub whose embeddings of --images and --captions are "
        "measured, instead of a run: CLIP, MetaCLIP 2 or SigLIP, by a name, a "
        "handle or the folder.",
    )
    prompt: str = flag(
        "{}", "What --hub is given for a caption, such as 'a photo of {}'."
    )
    cache: str = flag(
        "",
        "Folder to keep embeddings by --hub in; empty: FOLDER.tbnets beside "
        "--images=FOLDER.",
    )
    image_features: str = flag(
        "",
        "Embeddings of the images of --captions, instead of a run: a store, or "
        "a .npy with ids in _ids.txt beside it; may hold {split}.",
    )
    text_features: str = flag(
        "",
        "Embeddings of the captions in the same space: a store, or a .npy with "
        "ids, or with a row a caption of the split; may hold {split}.",
    )
    images: str = flag("", "Folder of the photos.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(checks.OfRun, OfData, checks.Choosing):
    """What is measured, of what, and where it is written."""

    run_dir: str = flag("", "Folder of a run; instead of the three arrays.")
    split: str = flag("test", "Split to evaluate.")
    save_embeddings: str = flag(
        "", "Folder for the three arrays that a split is measured by."
    )
    combine_with: str = flag(
        "",
        "Folder of another run on the same data: the sum of both distances "
        "ranks. A similarity network's stand for minus its logits, and both "
        "are then divided by their spread.",
    )
    combine_weight: Share = flag(
        0.3, "Weight of that run; --run_dir has the rest. Wang 2018: 0.3."
    )
    image_embeddings: str = flag("", "Array [num_images, dim] (.npy).")
    text_embeddings: str = flag("", "Array [num_captions, dim] (.npy).")
    caption_to_image: str = flag(
        "", "Row of the image of each caption (.npy of integers, or text)."
    )
    positive_pairs: str = flag(
        "",
        "What matches, in place of --caption_to_image: the rows of an image "
        "and of a caption for each match, [n, 2] (.npy). R-Precision and mAP@R "
        "are measured too (ECCV Caption).",
    )
    normalize: bool = flag(
        False, "Divide each row by its length: cosines rank, not products."
    )
    protocol: str = flag(
        "full",
        "; ".join(
            f"{k}: {v.description}" for k, v in protocols.PROTOCOLS.items()
        ),
        choices=list(protocols.PROTOCOLS),
    )
    text_to_text: bool = flag(True, "Rank captions against captions too.")
    region_phrase_ranking: bool = flag(
        False,
        "Of a run on phrases: rank all phrases for each true region too, and "
        "all true regions for each phrase (Niu 2017, Table 4).",
    )
    phrases: str = flag(
        "",
        "Of a run of photos and captions: phrases with boxes, as of --phrases "
        "of tools/train.py; how many find their region is measured too.",
    )
    regions: str = flag(
        "",
        "Features of regions for --phrases, by the network of the run's "
        "photos: a recipe such as features/crops_lite0.flags, which makes them "
        "of the split's photos, or a store.",
    )
    memory_limit_mb: Annotated[float, Limits(1)] = flag(
        512, "MiB for scores; the result does not depend on it."
    )
    json: str = flag("", "File to write the metrics to.")
    map: str = flag(
        "",
        "PNG to write: images, captions and noun phrases of the split, laid "
        "out in a plane by t-SNE (Niu 2017, Fig. 8).",
    )
    map_images: Annotated[int, Limits(1, 1000)] = flag(
        60,
        "Images on the map, each with up to 5 of its captions. Niu 2017: 60; "
        "more than 100 leave no space for words.",
    )


def evaluate_split(options):
    """Measures a split by what a run or others learned, and draws --map."""
    with startup.quiet_tensorflow():
        from tbnets import runs
        from tbnets.commands import zero_shot
    title = what = options.run_dir or zero_shot.title(options)
    if options.run_dir:
        scores = run_scores(options, runs, options.run_dir)
    else:
        scores = zero_shot.scores(options)
    points = map_points(options, scores)
    if options.combine_with:
        others = run_scores(options, runs, options.combine_with)
        scores = scores.combine(others, options.combine_weight)
        title += f" and {options.combine_weight:g} of {options.combine_with}"
    if options.save_embeddings:
        save_arrays(options, scores.arrays)
    title += f", {options.split}"
    if "protocol" in scores.options:
        title += f", protocol: {options.protocol}"
    for name, value in checks.chosen(options).items():
        title += f", {name.replace('_', ' ')}: {value}"
    tell(options, scores.metrics(**measure_options(options, scores)), title)
    if options.map:
        title = f"{what}, {options.split}, laid out by t-SNE"
        sheet = space_map.draw_map(points, title)
        files.write_atomically(
            options.map, lambda file: sheet.save(file, "PNG")
        )
        print(f"map  {options.map}")


def tell(options, metrics, title):
    """Prints the table, and writes --json."""
    print(tables.format_table(metrics, title))
    if options.json:
        files.write_json(options.json, metrics)


def run_scores(options, runs, run_dir):
    """Returns the scores of the split by a run."""
    session = runs.open_run(
        run_dir,
        options.checkpoint,
        data_root=options.data_root,
        more_splits=[options.split],
        adjust=lambda settings: settings.replace(
            evaluate_memory=options.memory_limit_mb
        ),
    )
    examples = session.task.data.load(options.split, session.state.fitted)
    scores = session.task.scores(session.network, examples)
    if options.phrases:
        from tbnets.tasks.matching.phrase_regions import phrase_region_scores
        from tbnets.tasks.scores import Together

        named = options.phrases, options.regions
        found = phrase_region_scores(session, options.split, *named)
        scores = Together([scores, found])
    return scores


def map_points(options, scores):
    """Returns the points of --map; None without it."""
    if not options.map:
        return None
    points = scores.points((options.map_images, MAP_CAPTIONS))
    if points is None:
        needed = "a run that embeds images and captions in one space"
        raise must_come_with(options, "map", needed)
    return points


def measure_options(options, scores):
    """Returns the flags given that scores are measured by."""
    others = set(OF_TASKS) - set(scores.options)
    for name in sorted(changed(options) & others):
        raise InputError(
            f"`--{name}` must be a flag that the run is measured by. "
            f"Received: --{name}={getattr(options, name)} for scores of "
            f"{scores.what}. Leave it out."
        )
    return {
        name: getattr(options, name)
        for name in OF_TASKS
        if name in scores.options
    }


def save_arrays(options, embeddings):
    """Writes the arrays that a run is measured by to --save_embeddings."""
    if not embeddings:
        needed = "a run that inner products of embeddings rank"
        raise must_come_with(options, "save_embeddings", needed)
    folder = pathlib.Path(options.save_embeddings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in embeddings.items():
        write = functools.partial(np.save, arr=array)
        files.write_atomically(folder / f"{name}.npy", write)


def evaluate_arrays(options):
    """Measures the arrays of the three file flags."""
    names = ("image_embeddings", "text_embeddings", "caption_to_image")
    missing = [f"--{name}" for name in names if not getattr(options, name)]
    if missing:
        others = [f"--{way}" for way in WAYS if way not in names]
        raise InputError(
            f"{', '.join(others)} or {', '.join(missing)} must be given. "
            "Received: none. `python tools/evaluate.py --help` shows an "
            "example."
        )
    sides = [arrays.read_array(getattr(options, name)) for name in names[:2]]
    rows = arrays.read_caption_to_image(options.caption_to_image)
    if options.normalize:
        sides = [arrays.unit_rows(side) for side in sides]
    given = {}
    if options.positive_pairs:
        if options.protocol != "full":
            must = "--protocol=full, whose rows are not cut into folds"
            raise must_come_with(options, "positive_pairs", must)
        given["positives"] = arrays.read_array(options.positive_pairs)
    metrics = protocols.evaluate_protocol(
        options.protocol,
        *sides,
        rows,
        memory_limit_mb=options.memory_limit_mb,
        text_to_text=options.text_to_text,
        **given,
    )
    tell(options, metrics, f"protocol: {options.protocol}")
    for name, side in zip(names, sides):
        if note := arrays.lengths_note(side):
            print(f"warning  --{name} has {note}")


def ways_of(name):
    """Returns in words with which of `WAYS` a flag is read; "" with all."""
    ways = [f"--{way}" for way in WAYS if name in (way, *WAYS[way])]
    return " or ".join(ways)


def help_sections():
    """Returns title -> flags, by what they are read with."""
    sections = {}
    for each in flags_of(Options):
        ways = ways_of(each.name)
        title = f"Read with {ways}" if ways else "Always read"
        sections.setdefault(title, []).append(each)
    return dict(sorted(sections.items(), reverse=True))


def chosen_way(options):
    """Returns which of `WAYS` is asked for; the last where none is.

    Raises:
        ValueError: a flag is given that is not read with it.
    """
    given = changed(options)
    way = next((way for way in WAYS if way in given), [*WAYS][-1])
    for name in sorted(given - {way, *WAYS[way]}):
        if ways := ways_of(name):
            raise InputError(
                f"`--{name}` must be a flag that is read. Received: --{name}="
                f"{getattr(options, name)}, which is read with {ways}, not "
                f"with --{way}. Leave it out, or change that."
            )
    return way


def check_flags(options):
    """Refuses flags that say nothing, and a place that can not be written."""
    given = changed(options)
    checks.check_choosing(options)
    others = {
        "combine_weight": "combine_with",
        "map_images": "map",
        "image_features": "text_features",
        "phrases": "regions",
        "regions": "phrases",
    }
    for name, other in others.items():
        if name in given and not getattr(options, other):
            raise must_come_with(options, name, f"--{other}")
    if options.phrases and options.combine_with:
        raise InputError(
            "`--phrases` must come with one run. Received: --phrases="
            f"{options.phrases} with --combine_with={options.combine_with}. "
            "Leave one of them out."
        )
    for name in sorted(given & {"json", "map"}):
        checks.check_place(name, getattr(options, name))
    if options.map:  # Refused before anything is computed.
        space_map.import_tsne()


def main(options):
    """Reads, measures, prints, writes."""
    of_split = "split" in WAYS[chosen_way(options)]
    check_flags(options)
    evaluate = evaluate_split if of_split else evaluate_arrays
    evaluate(options)
