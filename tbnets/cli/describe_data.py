r"""Prints what a caption data set holds, and everything wrong with it.

For instance:

  python tools/describe_data.py --captions_format=karpathy \
      --captions=flickr8k/dataset_flickr8k.json \
      --images=flickr8k/images \
      --image_features='flickr8k/precomp/{split}_ims.npy'

For each split: images and captions, captions per image, words per caption,
empty and repeated captions, and the share of words that the training split
does not have. Then every problem with its file and line: rows that cannot be
read, images in two splits, missing or broken image files, features that are
missing or not finite. The exit code is 1 if there is any problem, else 0.

With --phrases, phrases and their boxes as well: how many have a box, why the
others have none, their types. Without --captions, those of all images:

  python tools/describe_data.py --phrases=flickr8k/entities

The formats are shown in docs/data_formats.md.
"""

import dataclasses
import functools
import json

from tbnets.cli.data_flags import Captions
from tbnets.data import captions, description
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import flag
from tbnets.text.words import count_words

MOST_PRINTED = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Captions):
    """What is described, and where it is written."""

    captions: str = flag("", "File or folder of captions; may hold {split}.")
    phrases: str = flag(
        "",
        "Phrases with boxes: a folder as of Flickr30K Entities, or a .jsonl "
        "file of image, phrase, box.",
    )
    images: str = flag(
        "", "Folder of the image files, each of which is decoded."
    )
    image_features: list[str] = flag(
        [],
        "Features: a store, or [n, dim] (.npy) with ids in X_ids.txt beside "
        "X_ims.npy; may hold {split}. Several are put side by side.",
    )
    vocabulary_split: str = flag(
        "train", "Split of the known words ('train+restval' joins two)."
    )
    json: str = flag("", "File to write the same to as JSON.")


def read_splits(options, problems):
    """Returns {split: CaptionedImages} for --splits, and the known words."""
    read = functools.partial(
        captions.read_captions, *options.where, problems=problems
    )
    splits = {name: read(name) for name in options.names()}
    try:
        training = read(options.vocabulary_split)
    except ValueError:
        print(
            f"There is no split {options.vocabulary_split!r} to take the known "
            "words from (--vocabulary_split): no unknown words are counted.\n"
        )
        return splits, None
    return splits, set(count_words(training.captions)[0])


def print_report(splits, problems):
    """Prints the table of the splits, then the problems."""
    print(description.format_table(splits))
    print(
        "\nWords are those that models read: letters and digits in lower case; "
        "man's is two words, don't is dont."
    )
    count = len(problems)
    print(f"\n{count or 'No'} problem{'s' * (count != 1)}.")
    for problem in problems[:MOST_PRINTED]:
        print(problem)
    if count > MOST_PRINTED:
        print(f"... and {count - MOST_PRINTED} more; --json writes them all.")


def describe_one(options, images, phrases, vocabulary, problems):
    """Returns the counts of a split, as far as flags ask for them."""
    counts = description.describe_split(images, vocabulary)
    if phrases is not None:
        counts.update(description.describe_phrases(phrases))
    if options.image_features:
        patterns = options.image_features
        counts |= description.describe_features(images, patterns, problems)
    if options.images:
        description.check_images(images, options.images, problems)
    return counts


def main(options):
    """Reads, counts, prints; returns the exit code."""
    if not (options.captions or options.phrases):
        raise InputError(
            "`--captions` or `--phrases` must name what to describe. "
            "Received: neither. See --help."
        )
    problems, splits, vocabulary, phrases = [], {}, None, {}
    if options.captions:
        splits, vocabulary = read_splits(options, problems)
    if options.phrases:
        phrases = {
            name: read_phrases(options.phrases, one, problems)
            for name, one in (splits or {"all": None}).items()
        }
    splits = splits or {name: one.images for name, one in phrases.items()}
    told = {}
    for name, images in splits.items():
        known = phrases.get(name), vocabulary
        told[name] = describe_one(options, images, *known, problems)
    description.check_splits(splits, problems)
    problems = list(dict.fromkeys(problems))  # Splits may share a file.
    print_report(told, problems)
    if options.json:
        report = {"splits": told, "problems": [vars(one) for one in problems]}
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump(report, stream, indent=2, ensure_ascii=False)
    return 1 if problems else 0
