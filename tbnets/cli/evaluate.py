r"""Measure image-text retrieval of a run or of saved embeddings.

Measure a split of a run:

  tbnets evaluate --run_dir=runs/quickstart --split=test

Measure how well a run on photos and captions finds the boxes of phrases:

  tbnets evaluate --run_dir=runs/flickr8k_infonce \
      --phrases=flickr8k/entities --regions=features/averages_lite0.flags \
      --choice=expected_overlap --choice_temperature=0.04 \
      --choice_area_exponent=0.5

Compare two runs, by the difference of their recalls and its interval:

  tbnets evaluate --run_dir=runs/first,runs/second

Combine runs by the weighted sum of their distances (Wang et al. 2018, Eq. 8):

  tbnets evaluate --run_dir=runs/embedding \
      --combine_with=runs/similarity --combine_weight=0.3

Lower the rank of images and captions that are close to every query of a split:

  tbnets evaluate --run_dir=runs/quickstart --query_bank=train

Draw a t-SNE map (needs the extra: pip install "tbnets[map]"):

  tbnets evaluate --run_dir=runs/quickstart --map=map.png

Measure a zoo model, an exported run, or a Keras Hub preset (needs the extra:
pip install "tbnets[hub]") on photos:

  tbnets evaluate --model=hub:clip_vit_base_patch32 --images=photos \
      --captions=captions.csv --prompt="a photo of {}"

Measure embeddings by any model, matched by ids or by row:

  tbnets evaluate --captions=flickr8k/dataset_flickr8k.json \
      --image_features=clip_images.npy --text_features=clip_texts.npy
  tbnets evaluate --image_embeddings=images.npy \
      --text_embeddings=captions.npy --caption_to_image=rows.npy

images.npy is [num_images, dim], captions.npy is [num_captions, dim], and
rows.npy has the row of each caption's image, counted from 0. Embeddings of a
file are ranked by cosine similarity.

The command prints recall at 1, 5 and 10 and the median and mean rank, in both
directions and from captions to captions. For phrases, it prints recalls of
regions. docs/evaluation.md explains the metrics.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Annotated

import numpy as np

from tbnets import files
from tbnets.checks import checked_embeddings
from tbnets.cli import data_flags
from tbnets.cli.model_flags import TrustFlag
from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.data.splits import usual_name
from tbnets.data.store.npy import open_numbers
from tbnets.errors import InputError
from tbnets.evaluation import retrieval, tables
from tbnets.evaluation.boxes import CHOICE_ARGUMENTS
from tbnets.evaluation.exact_ranks import row_norms
from tbnets.evaluation.score_tiles import BANK_TEMPERATURE
from tbnets.serving import zoo
from tbnets.tasks import runs
from tbnets.tasks.phrase_regions import phrase_region_scores
from tbnets.tasks.retrieval_scores import RetrievalScores, scores_of_model
from tbnets.tasks.settings.data_groups import (
    DATA_ROOT_VARIABLE,
    CaptionSettings,
)
from tbnets.tasks.settings.flag import (
    Limits,
    changed,
    check_pairs,
    check_place,
    flag,
    flags_of,
    must_come_with,
    written,
)
from tbnets.visualization import plots

_SPLIT_FLAGS = (
    "split data_root save_embeddings combine_with map query_bank "
    "bank_temperature"
).split()
_REGION_FLAGS = ("region_phrase_ranking", *CHOICE_ARGUMENTS)
_DATA_FLAGS = ("images", *(field.name for field in flags_of(CaptionSettings)))
ALLOWED_FLAGS = {
    "run_dir": [
        *_SPLIT_FLAGS,
        "checkpoint",
        *_REGION_FLAGS,
        "phrases",
        "regions",
    ],
    "model": (*_SPLIT_FLAGS, *_DATA_FLAGS, "cache", "prompt", "trust"),
    "image_features": (*_SPLIT_FLAGS, *_DATA_FLAGS, "text_features"),
    "image_embeddings": ("text_embeddings caption_to_image positives".split()),
}
"""Maps a flag that selects the measured embeddings to the flags it allows."""
TASK_FLAGS = ("protocol", "text_to_text", *_REGION_FLAGS)
"""Flags that only some tasks use."""
_REQUIRED_FLAGS = {
    "combine_weight": "combine_with",
    "bank_temperature": "query_bank",
    "map_images": "map",
    "image_features": "text_features",
    "image_embeddings": "text_embeddings",
    "phrases": "regions",
    "regions": "phrases",
}
"""Maps a flag to the flag that it requires."""
_OF_ONE_RUN = {"combine_with", "map", "save_embeddings", "phrases", "protocol"}
_OF_ONE_RUN |= {*CHOICE_ARGUMENTS}
"""Flags that cannot be used if two runs are compared."""
MAP_CAPTIONS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(
    data_flags.RunFlags, CaptionSettings, data_flags.ChoiceFlags, TrustFlag
):
    """Flags for the measured embeddings, the metrics and the outputs."""

    run_dir: list[str] = flag(
        [],
        "Folder of the run to evaluate. Two folders, separated by a comma: "
        "also print how much the recalls of the second run are above those "
        "of the first, with 95 % intervals of a paired bootstrap over "
        "queries.",
    )
    model: str = flag(
        "",
        "Model that embeds --images and --captions, instead of a run: a zoo "
        "model, an exported model by its folder, or a Keras Hub preset, "
        "hub:PRESET (CLIP, MetaCLIP 2 or SigLIP, by name, handle or folder).",
    )
    prompt: str = flag(
        "{}", "Text that --model reads for a caption, such as 'a photo of {}'."
    )
    cache: str = flag(
        "",
        "Folder that caches the photos' embeddings by --model; empty: "
        "FOLDER.tbnets next to --images=FOLDER.",
    )
    image_features: str = flag(
        "",
        "Embeddings of the images of --captions, instead of a run: a store, "
        "or a .npy file with ids in _ids.txt next to it; may contain {split}.",
    )
    text_features: str = flag(
        "",
        "Embeddings of the captions in the space of --image_features: a "
        "store, or a .npy file with ids or with one row per caption of the "
        "split; may contain {split}.",
    )
    images: str = flag("", "Folder of the photos.")
    split: str = flag("test", "Split to evaluate.")
    save_embeddings: str = flag(
        "", "Folder to write the three arrays of the split to."
    )
    combine_with: list[str] = flag(
        [],
        "Folders of other runs on the same data, whose distances are added in "
        "this order. The distance of a similarity network is its negative "
        "logit. With such a network, and from the second sum on, both terms "
        "are first divided by their standard deviation.",
    )
    combine_weight: Annotated[list[float], Limits(0, 1)] = flag(
        [0.3],
        "Weight of each other run, or one weight for all of them; the earlier "
        "runs get the remaining weight. Wang 2018: 0.3.",
    )
    query_bank: str = flag(
        "",
        "Split, such as train, whose captions and images normalise the "
        "scores of --split (querybank normalisation): an image close to many "
        "captions, or a caption close to many images, ranks lower.",
    )
    bank_temperature: Annotated[float, Limits(0, above=True)] = flag(
        BANK_TEMPERATURE,
        "Temperature of the softmax over --query_bank, in standard "
        "deviations of scores.",
    )
    image_embeddings: str = flag("", "Array [num_images, dim] (.npy).")
    text_embeddings: str = flag("", "Array [num_captions, dim] (.npy).")
    caption_to_image: str = flag(
        "", "Row of each caption's image (.npy of integers)."
    )
    positives: str = flag(
        "",
        "Matching pairs, in place of --caption_to_image: the rows of the image "
        "and the caption of each match, [n, 2] (.npy). Adds R-Precision and "
        "mAP@R (ECCV Caption).",
    )
    protocol: str = flag(
        "full",
        "; ".join(
            f"{k}: {v.description}" for k, v in retrieval.PROTOCOLS.items()
        ),
        choices=list(retrieval.PROTOCOLS),
    )
    text_to_text: bool = flag(True, "Also rank captions against captions.")
    region_phrase_ranking: bool = flag(
        False,
        "For a run on phrases: also rank all phrases for each true region, "
        "and all true regions for each phrase (Niu 2017, Table 4).",
    )
    phrases: str = flag(
        "",
        "For a run of photos and captions: phrases with boxes, as for "
        "tbnets train; adds the accuracy of their localization.",
    )
    regions: str = flag(
        "",
        "Features of regions for --phrases, from the image network of the "
        "run: a recipe such as features/averages_lite0.flags, which computes "
        "them for the split's photos, or a store.",
    )
    json: str = flag("", "JSON file for the metrics.")
    map: str = flag(
        "",
        "Picture (.png): t-SNE map of images, captions and noun phrases of "
        "the split (Niu 2017, Fig. 8).",
    )
    map_images: Annotated[int, Limits(1, 1000)] = flag(
        60,
        "Images on the map, each with up to 5 of its captions. Niu 2017: 60. "
        "With more than 100, the words overlap.",
    )


def sources_of(name):
    """Names the flags in `ALLOWED_FLAGS` that allow a flag, or returns ""."""
    sources = [s for s, names in ALLOWED_FLAGS.items() if name in (s, *names)]
    return " or ".join(f"--{source}" for source in sources)


def help_sections():
    """Returns {title: flags}, the sections of --help, by `sources_of`."""
    sections = {}
    for option in flags_of(Options):
        sources = sources_of(option.name)
        title = f"Used with {sources}" if sources else "Always used"
        sections.setdefault(title, []).append(option)
    return dict(sorted(sections.items(), reverse=True))


def selected_source(options):
    """Returns the flag in `ALLOWED_FLAGS` that is set."""
    set_flags = changed(options)
    sources = [source for source in ALLOWED_FLAGS if source in set_flags]
    if not sources:
        known = " or ".join(f"--{source}" for source in ALLOWED_FLAGS)
        raise InputError(f"{known} must be given. Received: none. See --help.")
    source = sources[0]
    for name in sorted(set_flags - {source, *ALLOWED_FLAGS[source]}):
        if sources := sources_of(name):
            raise InputError(
                f"--{name}",
                f"be used with {sources}",
                f"--{name}={vars(options)[name]} with --{source}",
                f"Leave out --{name} or --{source}.",
            )
    return source


def check_evaluate_flags(options):
    """Raises an error if a flag or an output is unusable."""
    data_flags.check_choice_flags(options)
    check_pairs(options, _REQUIRED_FLAGS)
    for name in ("combine_with", "query_bank"):
        if options.phrases and (value := vars(options)[name]):
            raise InputError(
                "--phrases",
                "be set for a single run",
                f"--phrases={options.phrases} with --{name}={written(value)}",
                "Leave out one flag.",
            )
    if len(options.run_dir) > 2:
        raise InputError(
            "--run_dir",
            "be one run, or two runs to compare",
            f"--run_dir={written(options.run_dir)}",
            "Compare two runs at a time.",
        )
    if len(options.run_dir) == 2:
        for name in sorted(changed(options) & _OF_ONE_RUN):
            raise must_come_with(options, name, "a single --run_dir")
    if len(options.combine_weight) not in (1, len(options.combine_with)):
        raise InputError(
            "--combine_weight",
            "be one number, or one number per run of --combine_with",
            f"{written(options.combine_weight)} for "
            f"{written(options.combine_with)}",
            "Change one of the two flags.",
        )
    if usual_name(options.query_bank) == usual_name(options.split):
        raise InputError(
            "--query_bank",
            "differ from --split",
            f"--query_bank={options.query_bank} with --split={options.split}",
            "Name the training split.",
        )
    check_place("json", options.json)
    check_place("map", options.map)
    if options.map:  # Fails early if the extra is missing.
        plots.import_tsne()


def compare_runs(options):
    """Evaluates a split of two runs, and compares their recalls."""
    metrics, scores = {}, []
    for run_dir in options.run_dir:
        measured = with_query_bank(options, run_scores(options, run_dir))
        metrics[run_dir] = measured.metrics(
            **measure_options(options, measured)
        )
        title = f"{run_dir}, {options.split}"
        print(tables.format_table(metrics[run_dir], title), end="\n\n")
        scores.append(measured)
    differences = scores[0].difference(scores[1])
    first, second = options.run_dir
    title = f"{second} minus {first}, {options.split}"
    print(tables.format_differences(differences, title))
    if options.json:
        report = {"metrics": metrics, "differences": differences}
        files.write_json(options.json, report)


def evaluate_split(options):
    """Evaluates a split of a run or of other embeddings; draws --map."""
    run_dir = "".join(options.run_dir)
    features = f"{options.image_features} and {options.text_features}"
    title = measured = run_dir or options.model or features
    if run_dir:
        split_scores = run_scores(options, run_dir)
    else:
        split_scores = [model_scores(options, x) for x in splits_of(options)]
    points = map_points(options, split_scores[0])
    scores = with_query_bank(options, split_scores)
    weights = options.combine_weight
    if len(weights) == 1:
        weights = weights * len(options.combine_with)
    for run_dir, weight in zip(options.combine_with, weights):
        other_scores = with_query_bank(options, run_scores(options, run_dir))
        scores = scores.combine(other_scores, weight)
        title += f" and {weight:g} of {run_dir}"
    if options.save_embeddings:
        save_arrays(options, scores.arrays)
    title += f", {options.split}"
    if options.query_bank:
        title += f", query bank: {options.query_bank}"
    if "protocol" in scores.options:
        title += f", protocol: {options.protocol}"
    for name, value in data_flags.choice_arguments(options).items():
        title += f", {name.replace('_', ' ')}: {value}"
    print_metrics(
        options, scores.metrics(**measure_options(options, scores)), title
    )
    if options.map:
        title = f"{measured}, {options.split}, laid out by t-SNE"
        sheet = plots.draw_map(points, title)
        write = functools.partial(sheet.save, format="PNG")
        files.write_atomically(options.map, write)
        print(f"map  {options.map}")


def print_metrics(options, metrics, title):
    """Prints the metrics, and writes them to --json if it is set."""
    print(tables.format_table(metrics, title))
    if options.json:
        files.write_json(options.json, metrics)


def splits_of(options):
    """Returns the values of --split and, if set, --query_bank."""
    return [options.split, *filter(None, [options.query_bank])]


def with_query_bank(options, scores):
    """Returns the scores of --split, normalised with --query_bank if set."""
    first, *bank = scores
    return first.with_bank(*bank, options.bank_temperature) if bank else first


def run_scores(options, run_dir):
    """Returns a run's scores, one for each split in `splits_of`."""
    splits = splits_of(options)
    session = runs.open_run(
        run_dir,
        options.checkpoint,
        data_root=options.data_root,
    )
    task, fitted = session.task, session.state.fitted
    scores = [
        task.scores(session.network, task.load(split, fitted))
        for split in splits
    ]
    if options.phrases:
        named = options.phrases, options.regions
        phrase_scores = phrase_region_scores(session, options.split, *named)
        scores = [dataclasses.replace(*scores, phrases=phrase_scores)]
    return scores


def model_scores(options, name):
    """Returns the `RetrievalScores` of a split."""
    split = split_data(options, name)
    if options.model:
        check_model_flags(options)
        model = zoo.open_model(options.model, options.trust)
        place = options.prompt, options.cache or None
        return scores_of_model(model, split, *place)
    images, texts = (
        rows.batch(np.arange(len(rows.rows)))
        for rows in (split.images, split.texts)
    )
    named = {"--image_features": images, "--text_features": texts}
    sides = unit_rows(**named)
    return RetrievalScores(*sides, split.records, photos=split.photo_folder)


def split_data(options, name):
    """Returns the `SplitData` of the captions and images in the flags."""
    values = vars(options)
    names = {field.name for field in dataclasses.fields(Sources)}
    named = {name: values[name] for name in names & values.keys()}
    root = options.data_root or os.environ.get(DATA_ROOT_VARIABLE, "data")
    return Data(Sources(**{**named, "data_root": root})).split(name)


def check_model_flags(options):
    """Raises an error if a flag that --model needs is missing or invalid."""
    if not (options.images or options.scenes):
        raise must_come_with(
            options, "model", "--images", "Name the folder of the photos."
        )
    if "{}" not in options.prompt:
        raise InputError(
            "--prompt",
            "contain {} for the caption",
            f"--prompt={options.prompt}",
            "Write for example a photo of {}.",
        )


def map_points(options, scores):
    """Returns the points of --map, or None if --map is not set."""
    if not options.map:
        return None
    points = scores.points((options.map_images, MAP_CAPTIONS))
    if points is None:
        requirement = "a run that embeds images and captions in one space"
        raise must_come_with(options, "map", requirement)
    return points


def measure_options(options, scores):
    """Returns the options that `scores.metrics` supports."""
    unsupported = set(TASK_FLAGS) - set(scores.options)
    for name in sorted(changed(options) & unsupported):
        requirement = f"another task; these are scores of {scores.what}"
        raise must_come_with(options, name, requirement)
    values = vars(options)
    return {n: values[n] for n in TASK_FLAGS if n in scores.options}


def save_arrays(options, embeddings):
    """Writes the arrays of a split to --save_embeddings."""
    if not embeddings:
        requirement = "a run that ranks by inner products of embeddings"
        raise must_come_with(options, "save_embeddings", requirement)
    folder = pathlib.Path(options.save_embeddings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in embeddings.items():
        write = functools.partial(np.save, arr=array)
        files.write_atomically(folder / f"{name}.npy", write)


def read_array(path) -> np.ndarray:
    """Opens a `.npy` file of numbers, memory-mapped and read-only."""
    return open_numbers(
        path,
        "a .npy file of numbers",
        "Write it with numpy.save.",
        lambda header: 0 not in header.shape,
    )


def unit_rows(**named) -> list[np.ndarray]:
    """Returns two arrays `[n, dim]` with rows of L2 norm 1, in float32.

    Rows of zeros are unchanged. Error messages contain the names of arguments.
    """
    sides = []
    for rows in checked_embeddings(**named):
        rows = np.ascontiguousarray(rows, np.float32)
        lengths = row_norms(rows)[:, None].astype(np.float32)
        sides.append(rows / np.where(lengths > 0, lengths, 1))
    return sides


def evaluate_arrays(options):
    """Evaluates the arrays in the files that the flags name."""
    sides = unit_rows(
        image_embeddings=read_array(options.image_embeddings),
        text_embeddings=read_array(options.text_embeddings),
    )
    flags = ("caption_to_image", "positives")
    matches = {n: vars(options)[n] for n in flags if vars(options)[n]}
    if [*matches] == ["caption_to_image"]:
        metrics = retrieval.evaluate_protocol(
            options.protocol,
            *sides,
            read_array(options.caption_to_image),
            text_to_text=options.text_to_text,
        )
    elif [*matches] == ["positives"] and options.protocol == "full":
        matches = read_array(options.positives)
        metrics = retrieval.evaluate_retrieval(*sides, positives=matches)
    else:
        raise must_come_with(
            options,
            "image_embeddings",
            "either --caption_to_image, or --positives and --protocol=full",
            "Change these flags.",
        )
    print_metrics(options, metrics, f"protocol: {options.protocol}")


def main(options):
    """Computes and prints the metrics."""
    source = selected_source(options)
    check_evaluate_flags(options)
    if "split" not in ALLOWED_FLAGS[source]:
        evaluate_arrays(options)
    elif len(options.run_dir) == 2:
        compare_runs(options)
    else:
        evaluate_split(options)
