r"""Measures image-text retrieval, of a run or on saved embeddings.

A run of tools/train.py, on one of its splits:

  python tools/evaluate.py --run_dir=runs/quickstart --split=test

Whether a run of photos and captions finds what phrases name in a photo,
though it never saw a box:

  python tools/evaluate.py --run_dir=runs/flickr8k_infonce \
      --phrases=flickr8k/entities --regions=features/averages_lite0.flags \
      --choice=expected_overlap --choice_temperature=0.04 \
      --choice_area_exponent=0.5

Runs taken together, by the weighted sum of their distances (Wang et al. 2018,
Eq. 8):

  python tools/evaluate.py --run_dir=runs/embedding \
      --combine_with=runs/similarity --combine_weight=0.3

Images that lie near any caption, and captions near any image, levelled by the
queries of another split (docs/evaluation.md):

  python tools/evaluate.py --run_dir=runs/quickstart --query_bank=train

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
captions to captions (docs/evaluation.md); of phrases, recalls of regions
(docs/phrase_evaluation.md).
"""

import functools
import pathlib

import numpy as np

from tbnets import files
from tbnets.cli import arrays, checks, evaluate_flags
from tbnets.cli.evaluate_flags import Options, help_sections
from tbnets.data.splits import NoSuchSplit
from tbnets.errors import InputError
from tbnets.evaluation import protocols, retrieval, tables
from tbnets.tasks.settings.flag import changed, must_come_with
from tbnets.visualization import space_map

__all__ = ["Options", "help_sections", "main"]
MAP_CAPTIONS = 5


def evaluate_split(options):
    """Measures a split by what a run or others learned, and draws --map."""
    from tbnets.cli import zero_shot
    from tbnets.tasks import runs

    title = what = options.run_dir or zero_shot.title(options)
    if options.run_dir:
        found = run_scores(options, runs, options.run_dir)
    else:
        found = [zero_shot.scores(options, one) for one in splits_of(options)]
    points = map_points(options, found[0])
    scores = levelled(options, found)
    weights = options.combine_weight
    if len(weights) == 1:
        weights = weights * len(options.combine_with)
    for other, weight in zip(options.combine_with, weights):
        found = levelled(options, run_scores(options, runs, other))
        scores = scores.combine(found, weight)
        title += f" and {weight:g} of {other}"
    if options.save_embeddings:
        save_arrays(options, scores.arrays)
    title += f", {options.split}"
    if options.query_bank:
        title += f", query bank: {options.query_bank}"
    if "protocol" in scores.options:
        title += f", protocol: {options.protocol}"
    for name, value in checks.chosen(options).items():
        title += f", {name.replace('_', ' ')}: {value}"
    tell(options, scores.metrics(**measure_options(options, scores)), title)
    if options.map:
        title = f"{what}, {options.split}, laid out by t-SNE"
        sheet = space_map.draw_map(points, title)
        write = functools.partial(sheet.save, format="PNG")
        files.write_atomically(options.map, write)
        print(f"map  {options.map}")


def tell(options, metrics, title):
    """Prints the table, and writes --json."""
    print(tables.format_table(metrics, title))
    if options.json:
        files.write_json(options.json, metrics)


def splits_of(options):
    """Returns the name of the split, and that of the query bank if any."""
    return [options.split, *filter(None, [options.query_bank])]


def levelled(options, scores):
    """Returns the first of some scores, by the level of a bank if one is there.

    Args:
        options: `Options`.
        scores: those of `splits_of`, by one model.
    """
    first, *bank = scores
    return first.with_bank(*bank, options.bank_temperature) if bank else first


def run_scores(options, runs, run_dir):
    """Returns the scores of each of `splits_of` by a run."""
    splits = splits_of(options)
    session = runs.open_run(
        run_dir,
        options.checkpoint,
        data_root=options.data_root,
        more_splits=splits,
        adjust=lambda settings: settings.replace(
            evaluate_memory=options.memory_limit_mb
        ),
    )
    data, fitted = session.task.data, session.state.fitted
    scores = [
        session.task.scores(session.network, data.load(split, fitted))
        for split in splits
    ]
    if options.phrases:
        from tbnets.tasks.matching.phrase_regions import phrase_region_scores
        from tbnets.tasks.scores import Together

        named = options.phrases, options.regions
        found = phrase_region_scores(session, options.split, *named)
        scores = [Together([*scores, found])]
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
    others = set(evaluate_flags.OF_TASKS) - set(scores.options)
    for name in sorted(changed(options) & others):
        raise InputError(
            f"`--{name}` must be a flag that the run is measured by. "
            f"Received: --{name}={getattr(options, name)} for scores of "
            f"{scores.what}. Leave it out."
        )
    return {
        name: getattr(options, name)
        for name in evaluate_flags.OF_TASKS
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
    """Measures the arrays that the file flags name."""
    matches = "positive_pairs" if options.positive_pairs else "caption_to_image"
    paths = {
        "image_embeddings": options.image_embeddings,
        "text_embeddings": options.text_embeddings,
        matches: options.positive_pairs or options.caption_to_image,
    }
    missing = [f"--{name}" for name, path in paths.items() if not path]
    if missing:
        others = [f"--{way}" for way in evaluate_flags.WAYS if way not in paths]
        raise InputError(
            f"{', '.join(others)} or {', '.join(missing)} must be given. "
            "Received: none. `python tools/evaluate.py --help` shows an "
            "example."
        )
    sides = [
        arrays.read_array(options.image_embeddings),
        arrays.read_array(options.text_embeddings),
    ]
    if options.normalize:
        sides = [arrays.unit_rows(side) for side in sides]
    metrics = _metrics_of_arrays(options, sides)
    tell(options, metrics, f"protocol: {options.protocol}")
    for name, side in zip(paths, sides):
        if note := arrays.lengths_note(side):
            print(f"warning  --{name} has {note}")


def _metrics_of_arrays(options, sides):
    """Returns the metrics of image and text embeddings."""
    limit = options.memory_limit_mb
    if not options.positive_pairs:
        return protocols.evaluate_protocol(
            options.protocol,
            *sides,
            arrays.read_caption_to_image(options.caption_to_image),
            memory_limit_mb=limit,
            text_to_text=options.text_to_text,
        )
    if options.caption_to_image:
        raise InputError(
            "`--positive_pairs` must come without --caption_to_image. "
            "Received: both. Leave one of them out."
        )
    if options.protocol != "full":
        must = "--protocol=full, whose rows are not cut into folds"
        raise must_come_with(options, "positive_pairs", must)
    return retrieval.evaluate_retrieval(
        *sides,
        positives=arrays.read_array(options.positive_pairs),
        memory_limit_mb=limit,
    )


def main(options):
    """Reads, measures, prints, writes."""
    way = evaluate_flags.chosen_way(options)
    evaluate_flags.check_flags(options)
    of_split = "split" in evaluate_flags.WAYS[way]
    evaluate = evaluate_split if of_split else evaluate_arrays
    try:
        evaluate(options)
    except NoSuchSplit as error:
        if error.split != options.query_bank:
            raise
        told = error.split, error.names, error.path, "--query_bank"
        raise NoSuchSplit(*told) from error
