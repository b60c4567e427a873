"""What a caption data set holds: counts for each split, and its problems.

Words are those of `text.vocabulary.split_words`, which a model reads.
"""

import collections
import itertools
import os

import numpy as np

from tbnets.checked_files import Problem, shown
from tbnets.data import splits as split_names
from tbnets.data.captions import CaptionedImages
from tbnets.identity import text_key
from tbnets.images import faults
from tbnets.rounding import per_cent
from tbnets.store.arrays import check_finite
from tbnets.store.opening import open_features
from tbnets.text.vocabulary import count_words

MOST_COUNTS = 6
MOST_NAMED = 5


def known_words(images: CaptionedImages) -> set[str]:
    """Returns the words that occur in a split."""
    return set(count_words(images.captions)[0])


def describe_split(
    images: CaptionedImages, vocabulary: set[str] | None = None
) -> dict:
    """Returns the counts of one split.

    Args:
        images: the split.
        vocabulary: the words of the training split; None leaves the rate of
            unknown words out.

    Returns:
        A dict in the order in which a reader wants to see it; numbers are
        counts, `unknown_word_rate` is the share of all words in [0, 1].
    """
    per_image = images.captions_per_image
    words, lengths = count_words(images.captions)
    copies, shared = _repeated_captions(images)
    counts = {
        "images": images.num_images,
        "captions": images.num_captions,
        "captions_per_image": spread(per_image, np.mean),
        "images_by_number_of_captions": _histogram(per_image),
        "words_per_caption": spread(lengths, np.median),
        "images_without_captions": int((per_image == 0).sum()),
        "empty_captions": sum(not caption for caption in images.captions),
        "captions_without_words": int((lengths == 0).sum()),
        "repeated_within_an_image": copies,
        "shared_by_several_images": shared,
        "words": int(lengths.sum()),
        "distinct_words": len(words),
    }
    if vocabulary is not None:
        unknown = sum(words[word] for word in words.keys() - vocabulary)
        counts["unknown_words"] = unknown
        counts["unknown_word_rate"] = unknown / max(1, counts["words"])
    return counts


def spread(values, middle) -> dict:
    """Returns the least, a middle (a function of NumPy) and the largest."""
    if not len(values):
        return {"min": 0, middle.__name__: 0.0, "max": 0}
    return {
        "min": int(values.min()),
        middle.__name__: float(middle(values)),
        "max": int(values.max()),
    }


def _histogram(values):
    numbers, counts = np.unique(values, return_counts=True)
    return {str(n): int(count) for n, count in zip(numbers, counts)}


def _repeated_captions(images):
    """Returns (copies within an image, captions that other images share).

    Captions that read the same are one; empty ones are counted elsewhere.
    """
    owners = collections.defaultdict(collections.Counter)
    for caption, row in zip(images.captions, images.caption_to_image):
        if caption:
            owners[text_key(caption)][int(row)] += 1
    copies = sum(
        count - 1 for rows in owners.values() for count in rows.values()
    )
    shared = sum(
        sum(rows.values()) for rows in owners.values() if len(rows) > 1
    )
    return copies, shared


def find_common_images(splits: dict[str, CaptionedImages]) -> list[Problem]:
    """Returns a problem for each pair of splits that have images in common.

    Splits whose images have no ids can not be compared.

    Args:
        splits: name -> images.
    """
    return [
        Problem(
            splits[first].path,
            None,
            f"expected each image in one split; found {len(both)} in "
            f"{first!r} and in {second!r}: {_listed(both)}. Take them out of "
            "one of the two.",
        )
        for first, second in itertools.combinations(splits, 2)
        if (both := splits[first].common_ids(splits[second]))
    ]


def _listed(keys):
    more = len(keys) - MOST_NAMED
    names = ", ".join(map(repr, keys[:MOST_NAMED]))
    return names + (f" and {more} more" if more > 0 else "")


def check_images(images: CaptionedImages, folder) -> list[Problem]:
    """Opens every image of a split and decodes it.

    Args:
        images: the split.
        folder: where its file names start from.

    Returns:
        A problem for each image that is no photo, or not there.
    """
    paths = [
        os.path.join(folder, images.file_name(row))
        for row in range(images.num_images)
    ]
    return [
        Problem(
            path,
            None,
            f"expected the image of id {shown(key)} in {images.split!r}, a "
            f"whole JPEG or PNG file; found that it {reason}. Copy or convert "
            "it, or take the image out of the captions.",
        )
        for key, path, reason in zip(images.image_ids, paths, faults(paths))
        if reason
    ]


def describe_features(
    images: CaptionedImages, *patterns: str
) -> tuple[dict, list[Problem]]:
    """Joins a split with its features, by id, and checks their numbers.

    Args:
        images: the split.
        *patterns: a feature store or a `.npy` file; `{split}` stands for
            the split. Several are put side by side.

    Returns:
        (counts, problems): rows and numbers a row, images without features,
        those of them whose features a store failed to extract, and rows that
        are not finite.
    """
    path = ", ".join(patterns)
    try:
        paths = [
            split_names.fill_split(each, images.split) for each in patterns
        ]
        path = ", ".join(paths)
        features = open_features(*paths)
        features.verify()
    except (OSError, ValueError) as error:
        message = str(error).removeprefix(f"{path}: ")
        return {}, [Problem(path, None, message)]
    missing = features.missing(images.image_ids)
    failed = [key for key in missing if key in features.failed]
    problems = [
        Problem(
            path,
            None,
            f"expected features of {shown(key)} in {images.split!r}; found "
            f"that their extraction failed: {features.failed[key]}",
        )
        for key in failed
    ]
    if missing:
        message = (
            f"expected features of the {images.num_images} images of "
            f"{images.split!r}; found none for {len(missing)}: "
            f"{_listed(missing)}; {features.looks()}."
        )
        problems.append(Problem(path, None, message))
    counts = {
        "feature_rows": len(features),
        "features_per_row": features.dim,
        "images_without_features": len(missing),
        "images_failed": len(failed),
        "rows_not_finite": check_finite(features, problems),
    }
    return counts, problems


def format_table(splits: dict[str, dict]) -> str:
    """Returns the counts of the splits side by side, one count a line."""
    rows = [["", *splits]]
    names = dict.fromkeys(key for counts in splits.values() for key in counts)
    for name in names:
        cells = [_cell(counts.get(name)) for counts in splits.values()]
        rows.append([_TITLES.get(name, name.replace("_", " ")), *cells])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        row[0].ljust(widths[0])
        + "".join(f"  {c.rjust(w)}" for c, w in zip(row[1:], widths[1:]))
        for row in rows
    )


_TITLES = {
    "captions_per_image": "captions per image, min/mean/max",
    "words_per_caption": "words per caption, min/median/max",
    "repeated_within_an_image": "captions repeated within an image",
    "shared_by_several_images": "captions shared by several images",
    "no_box_notvisual": "no box: chain 0",
    "no_box_scene": "no box: all of the photo",
    "no_box_nobndbox": "no box: not visible",
    "no_box_unknown": "no box: chain without annotation",
    "boxed_phrases_per_image": "boxed phrases per image, min/mean/max",
    "words_per_phrase": "words per phrase, min/median/max",
    "median_box_area": "area of a box, median share of the image",
    "unknown_word_rate": "unknown words, share",
    "images_failed": "of these, failed in extraction",
    "rows_not_finite": "feature rows with NaN or infinity",
}


def _cell(value):
    if value is None or value == {}:
        return "-"
    if isinstance(value, float):
        return f"{per_cent(value, 2)}%"
    if isinstance(value, dict) and "min" in value:
        low, middle, high = value.values()
        return f"{low}/{middle:.1f}/{high}"
    if isinstance(value, dict):
        pairs = [f"{key}: {count}" for key, count in value.items()]
        more = ["..."] * (len(pairs) > MOST_COUNTS)
        return ", ".join(pairs[:MOST_COUNTS] + more)
    return str(value)
