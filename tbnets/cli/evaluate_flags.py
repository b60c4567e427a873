"""The flags of `evaluate`, and which of them are read with which."""

import dataclasses
import pathlib
from typing import Annotated

from tbnets.cli import checks
from tbnets.data.splits import SAME_SPLIT
from tbnets.errors import InputError
from tbnets.evaluation import protocols
from tbnets.evaluation.choices import CHOOSING
from tbnets.evaluation.query_bank import TEMPERATURE
from tbnets.tasks.settings.data_groups import Captions
from tbnets.tasks.settings.flag import (
    Limits,
    changed,
    check_pairs,
    flag,
    flags_of,
    written,
)
from tbnets.tasks.settings.records import SETTINGS_FILE
from tbnets.visualization import space_map

_OF_A_SPLIT = (
    *("split", "data_root", "save_embeddings", "combine_with", "map"),
    *("query_bank", "bank_temperature"),
)
_OF_PHRASES = ("region_phrase_ranking", *CHOOSING)
_OF_DATA = ("images", *(each.name for each in flags_of(Captions)))
WAYS = {
    "run_dir": (*_OF_A_SPLIT, "checkpoint", *_OF_PHRASES, "phrases", "regions"),
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
_PAIRS = {
    "combine_weight": "combine_with",
    "bank_temperature": "query_bank",
    "map_images": "map",
    "image_features": "text_features",
    "phrases": "regions",
    "regions": "phrases",
}
"""Flag -> the one that it says nothing without."""


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
    combine_with: list[str] = flag(
        [],
        "Folders of other runs on the same data, added one after the other: "
        "the sum of both distances ranks. A similarity network's stand for "
        "minus its logits; then, and from the second sum on, both sides are "
        "divided by their spread.",
    )
    combine_weight: Annotated[list[float], Limits(0, 1)] = flag(
        [0.3],
        "Weight of each, or of all; what was there before has the rest. Wang "
        "2018: 0.3.",
    )
    query_bank: str = flag(
        "",
        "Split such as train whose captions and images level those of --split: "
        "an image that is near to any caption, or a caption near to any image, "
        "is answered less often (querybank normalisation).",
    )
    bank_temperature: Annotated[float, Limits(0, above=True)] = flag(
        TEMPERATURE,
        "Of the softmax over --query_bank, in standard deviations of scores.",
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
        "photos: a recipe such as features/averages_lite0.flags, which makes "
        "them of the split's photos, or a store.",
    )
    memory_limit_mb: Annotated[float, Limits(1)] = flag(
        512, "MiB for scores; the result does not depend on it."
    )
    json: str = flag("", "File to write the metrics to.")
    map: str = flag(
        "",
        "File to write (.png): images, captions and noun phrases of the split, "
        "laid out in a plane by t-SNE (Niu 2017, Fig. 8).",
    )
    map_images: Annotated[int, Limits(1, 1000)] = flag(
        60,
        "Images on the map, each with up to 5 of its captions. Niu 2017: 60; "
        "more than 100 leave no space for words.",
    )


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
    checks.check_choosing(options)
    check_pairs(options, _PAIRS)
    for name in ("combine_with", "query_bank"):
        if options.phrases and (other := getattr(options, name)):
            raise InputError(
                "`--phrases` must come with one run alone. Received: --phrases="
                f"{options.phrases} with --{name}={written(other)}. Leave one "
                "of them out."
            )
    if len(options.combine_weight) not in (1, len(options.combine_with)):
        raise InputError(
            "`--combine_weight` must be one number, or one for each run of "
            f"--combine_with. Received: {written(options.combine_weight)} for "
            f"{written(options.combine_with)}. Change the one or the other."
        )
    for folder in options.combine_with:  # Told before the first is scored.
        if not pathlib.Path(folder, SETTINGS_FILE).is_file():
            raise InputError(
                "`--combine_with` must be folders of runs. Received: "
                f"{folder!r}, without {SETTINGS_FILE}. Name what "
                "tools/train.py wrote."
            )
    both = {options.query_bank, options.split}
    if len(both) == 1 or both <= {*SAME_SPLIT}:
        raise InputError(
            "`--query_bank` must be another split than --split, whose queries "
            "are to be answered one by one. Received: --query_bank="
            f"{options.query_bank} with --split={options.split}. Name the "
            "training split."
        )
    checks.check_place("json", options.json)
    checks.check_place("map", options.map, ".png")
    if options.map:  # Refused before anything is computed.
        space_map.import_tsne()
