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

import json

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets.data import captions, description
from tbnets.data.format_guess import usual_format
from tbnets.data.phrase_description import describe_phrases
from tbnets.data.phrases import read_phrases

_FORMAT = flags.DEFINE_enum(
    "captions_format",
    None,
    list(captions.READERS),
    "Format of --captions; not given, table for a .csv, .tsv or .jsonl, else "
    "karpathy.",
)
_CAPTIONS = flags.DEFINE_string(
    "captions",
    None,
    "Caption file, or folder for 'precomputed'; {split} in it stands for the "
    "name of the split.",
)
_PHRASES = flags.DEFINE_string(
    "phrases",
    None,
    "Phrases with boxes: a folder with Sentences and Annotations as of "
    "Flickr30K Entities, or a .jsonl file of image, phrase, box.",
)
_SPLITS = flags.DEFINE_list(
    "splits", None, "Splits to describe; by default all there are."
)
_IMAGES = flags.DEFINE_string(
    "images", None, "Folder of the image files, each of which is decoded."
)
_IMAGE_FEATURES = flags.DEFINE_list(
    "image_features",
    None,
    "Features: a store, or [n, dim] (.npy) with ids in X_ids.txt beside "
    "X_ims.npy; {split} stands for the name of the split. Several are put "
    "side by side.",
)
_VOCABULARY_SPLIT = flags.DEFINE_string(
    "vocabulary_split",
    "train",
    "Split whose words are the known ones ('train+restval' joins two).",
)
_JSON = flags.DEFINE_string("json", None, "File to write the same to as JSON.")

MOST_PRINTED = 50


def read_splits(problems):
    """Returns {split: CaptionedImages} for --splits, and the known words."""
    path = _CAPTIONS.value
    where = (_FORMAT.value or usual_format(path), path)
    names = _SPLITS.value or captions.list_splits(*where)
    splits = {n: captions.read_captions(*where, n, problems) for n in names}
    try:
        training = captions.read_captions(
            *where, _VOCABULARY_SPLIT.value, problems
        )
    except ValueError:
        print(
            f"There is no split {_VOCABULARY_SPLIT.value!r} to take the known "
            "words from (--vocabulary_split): no unknown words are counted.\n"
        )
        return splits, None
    return splits, description.known_words(training)


def print_report(report, problems):
    """Prints the table of the splits, then the problems."""
    print(description.format_table(report["splits"]))
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


def read_all_phrases(splits, problems):
    """Returns {split: PhraseRegions}; without splits, "all" there are."""
    path = _PHRASES.value
    if not path:
        return {}
    if not splits:
        return {"all": read_phrases(path, None, problems)}
    return {n: read_phrases(path, one, problems) for n, one in splits.items()}


def describe_one(images, phrases, vocabulary, problems):
    """Returns the counts of a split, as far as flags ask for them."""
    counts = description.describe_split(images, vocabulary)
    if phrases is not None:
        counts.update(describe_phrases(phrases))
    if _IMAGE_FEATURES.value:
        more, found = description.describe_features(
            images, *_IMAGE_FEATURES.value
        )
        counts.update(more)
        problems += found
    if _IMAGES.value:
        problems += description.check_images(images, _IMAGES.value)
    return counts


def main(argv):
    """Reads, counts, prints; returns the exit code."""
    if len(argv) > 1:
        raise InputError(
            "`describe_data.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    if not (_CAPTIONS.value or _PHRASES.value):
        raise InputError(
            "`--captions` or `--phrases` must name what to describe. "
            "Received: neither. See --help."
        )
    problems, splits, vocabulary = [], {}, None
    if _CAPTIONS.value:
        splits, vocabulary = read_splits(problems)
    phrases = read_all_phrases(splits, problems)
    splits = splits or {name: one.images for name, one in phrases.items()}
    report = {
        "splits": {
            name: describe_one(images, phrases.get(name), vocabulary, problems)
            for name, images in splits.items()
        }
    }
    problems += description.find_common_images(splits)
    problems = list(dict.fromkeys(problems))  # Splits may share a file.
    print_report(report, problems)
    if _JSON.value:
        report["problems"] = [vars(problem) for problem in problems]
        with open(_JSON.value, "w", encoding="utf-8") as stream:
            json.dump(report, stream, indent=2, ensure_ascii=False)
    return 1 if problems else 0


if __name__ == "__main__":
    startup.run_tool(main)
