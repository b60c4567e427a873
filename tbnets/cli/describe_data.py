r"""Print statistics and problems of a caption data set.

For example:

  tbnets describe_data --captions=flickr8k/dataset_flickr8k.json \
      --images=flickr8k/images

For each split, the command counts images, captions, words, empty and repeated
captions, and words that are not in the split train. It then prints the
problems with their files and lines: unreadable rows, images in two splits, and
broken or missing image files. Problems with the same message are printed
together. The exit code is 1 if there are problems.

With --images, it also decodes each photo, and counts the photos that have no
captions. It does not look for blurred photos or near-copies; the package
cleanvision does.

Count phrases with and without boxes:

  tbnets describe_data --phrases=flickr8k/entities

docs/data_formats.md describes the formats.
"""

import contextlib
import dataclasses
import itertools

import numpy as np

from tbnets import files
from tbnets.checks import per_cent, text_ids
from tbnets.cli.data_flags import CaptionFlags
from tbnets.data import captions
from tbnets.data.archives import has_archives, photo_root
from tbnets.data.captions import CaptionedImages, common_images
from tbnets.data.images import faults
from tbnets.data.photos import MATCHED, find_photos
from tbnets.data.phrases import PhraseRegions, read_phrases
from tbnets.data.sources import Sources
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, listed, shown
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import flag
from tbnets.text.vocabulary import count_words

# Words are counted as models read them: `text.vocabulary.split_words`.


def describe_split(
    images: CaptionedImages, known_words: set[str] | None = None
) -> dict:
    """Returns the counts of one split in the order of the report.

    `known_words` contains the words of the training split, or is None.
    """
    per_image = images.captions_per_image
    words, lengths = count_words(images.captions)
    copies, shared = _repeated_captions(images)
    counts = {
        "images": images.num_images,
        "captions": images.num_captions,
        "captions_per_image": _spread(per_image, np.mean),
        "words_per_caption": _spread(lengths, np.median),
        "images_without_captions": int((per_image == 0).sum()),
        "empty_captions": sum(not caption for caption in images.captions),
        "captions_without_words": int((lengths == 0).sum()),
        "repeated_within_an_image": copies,
        "shared_by_several_images": shared,
        "words": int(lengths.sum()),
        "distinct_words": len(words),
    }
    if known_words is not None:
        unknown = sum(words[word] for word in words.keys() - known_words)
        counts["unknown_words"] = unknown
        counts["unknown_word_rate"] = unknown / max(1, counts["words"])
    return counts


def describe_phrases(phrases: PhraseRegions) -> dict:
    """Returns counts of the phrases of one split, in the order of the report.

    A phrase with several types counts once for each type. A chain is an object
    that one or more phrases name.
    """
    count = phrases.num_phrases
    missing = {key: int(n.sum()) for key, n in phrases.left_out.items()}
    per_image = phrases.as_captions().captions_per_image
    lengths = phrases.spans[:, 1] - phrases.spans[:, 0]
    counts = {
        "phrases": count + sum(missing.values()),
        "phrases_with_a_box": count,
        **{f"no_box_{key}": number for key, number in missing.items()},
        "chains_with_a_box": len(np.unique(phrases.phrase_to_chain)),
        "distinct_phrases": len(np.unique(phrases.phrase_to_text)),
        "boxed_phrases_per_image": _spread(per_image, np.mean),
        "images_without_phrases": int((per_image == 0).sum()),
        "words_per_phrase": _spread(lengths, np.median),
    }
    if count and (phrases.image_sizes > 0).all():
        boxes = phrases.fractions()
        sides = boxes[:, 2:] - boxes[:, :2]
        counts["median_box_area"] = float(np.median(sides.prod(axis=1)))
    for name, mask in phrases.type_masks().items():
        counts[f"type_{name}"] = int(mask.sum())
    return counts


def _spread(values, middle):
    values = values if len(values) else np.zeros(1, int)
    low, high = int(values.min()), int(values.max())
    return {"min": low, middle.__name__: float(middle(values)), "max": high}


def _repeated_captions(images):
    """Counts captions repeated in one image, and captions of several images."""
    nonempty = [row for row, caption in enumerate(images.captions) if caption]
    texts = text_ids([images.captions[row] for row in nonempty])
    owners = images.caption_to_image[np.array(nonempty, np.int64)]
    pairs = np.unique(texts * images.num_images + owners)
    num_owners = np.bincount(pairs // max(1, images.num_images))
    shared = np.count_nonzero(num_owners[texts] > 1)
    return len(nonempty) - len(pairs), int(shared)


def check_splits(splits: dict[str, CaptionedImages], problems: list):
    """Adds a problem for each pair of splits that share images."""
    for first, second, common in common_images(splits):
        CheckedFile(splits[first].path, problems).report(
            f"expected each image in one split; found {len(common)} in "
            f"{first!r} and in {second!r}: {listed([*map(repr, common)])}."
        )


def check_photos(options, splits: dict[str, CaptionedImages], problems: list):
    """Decodes the photos of the splits, and adds a problem for each failure.

    Returns a line about the photos without captions, or "" with --splits.
    """
    root, used = photo_root(options.images), set()
    for name, images in splits.items():
        paths = [root / photo for photo in images.names]
        used |= set(paths)
        with progress_bar(len(paths), "photos", "photo") as bar:
            for key, path, fault in zip(images.image_ids, paths, faults(paths)):
                bar.update()
                if fault:
                    message = f"{fault}. It is image {shown(key)} of {name!r}."
                    CheckedFile(path, problems).report(message)
    if options.splits:
        return ""
    photos = []
    with contextlib.suppress(MissingFileError):
        photos = find_photos(options.images)
    unused = [key for key, path in photos if path not in used]
    title = f"{len(unused)} photos have no row in the captions"
    return f"{title}: {listed(unused)}." if unused else ""


def format_counts(splits: dict[str, dict]) -> str:
    """Formats the counts of the splits as a table."""
    rows = [["", *splits]]
    for name in dict.fromkeys(itertools.chain(*splits.values())):
        values = [counts.get(name) for counts in splits.values()]
        title = _TITLES.get(name, name.replace("_", " "))
        spread = next((x for x in values if isinstance(x, dict)), None)
        if spread:
            title += f", {'/'.join(spread)}"
        rows.append([title, *map(_cell, values)])
    first, *widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for title, *cells in rows:
        cells = (cell.rjust(width) for cell, width in zip(cells, widths))
        lines.append("  ".join([title.ljust(first), *cells]))
    return "\n".join(lines)


_TITLES = {
    "no_box_repeated": "rows with the same phrase and box",
    "no_box_notvisual": "no box: chain 0",
    "no_box_scene": "no box: scene",
    "no_box_nobndbox": "no box: not visible",
    "no_box_unknown": "no box: chain without annotation",
    "median_box_area": "area of a box, median share of the image",
    "unknown_word_rate": "unknown words, share",
}


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{per_cent(value, 2)}%"
    if isinstance(value, dict):
        low, middle, high = value.values()
        return f"{low}/{middle:.1f}/{high}"
    return str(value)


MOST_PRINTED = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(CaptionFlags):
    """Flags that select the data to describe and the outputs to write."""

    captions: str = flag(
        "", "File or folder of captions. Default: those in --images."
    )
    phrases: str = flag("", "Phrases, as in --phrases of tbnets train.")
    images: str = flag("", "Folder of the photos, all of which are decoded.")
    json: str = flag("", "JSON file for the counts and problems.")


def read_splits(options, problems):
    """Returns the source, a dict of the splits, and the training words or None.

    The words are a set.
    """
    source = options.sources(images=options.images).caption_source()
    names = options.splits or source.splits()
    splits = {name: source.read(name, problems=problems) for name in names}
    if "train" not in source.splits():
        return source, splits, None
    training = splits.get("train") or source.read("train", problems=problems)
    return source, splits, set(count_words(training.captions)[0])


def print_report(splits, unused, problems):
    """Prints the counts, the line on unused photos, and the problems."""
    print(format_counts(splits))
    if unused:
        print(f"\n{unused}")
    count = len(problems)
    print(f"\n{count or 'No'} problem{'s' * (count != 1)}.")
    places = {}
    for problem in problems:
        place = str(problem).removesuffix(problem.message)
        places.setdefault(problem.message, []).append(place)
    for message, [first, *others] in [*places.items()][:MOST_PRINTED]:
        print(first + message)
        if others:
            others = [place.removesuffix(": ") for place in others]
            print(f"  This is also true of {listed(others, 3)}.")
    if len(places) > MOST_PRINTED:
        print("... and more; --json writes all problems.")


def _captions_of(options):
    """Returns the path of captions in the folder --images, or ""."""
    if not options.images:
        return ""
    sources = Sources("", "", images=options.images)
    found = sources.captions_beside_photos().get("captions", "")
    return found or options.images * has_archives(options.images)


def main(options):
    """Prints the report and returns the exit code."""
    if not (options.captions or options.phrases):
        options = dataclasses.replace(options, captions=_captions_of(options))
    if not (options.captions or options.phrases):
        raise InputError("--captions", "be set, or `--phrases`", "neither")
    problems, splits, vocabulary, phrases = [], {}, None, {}
    if options.captions:
        source, splits, vocabulary = read_splits(options, problems)
        print(f"Read as: {captions.summary(splits.values())}\n")
        if source.matches:
            print(f"{MATCHED}\n")
    if options.phrases:
        phrases = {
            name: read_phrases(options.phrases, split, problems)
            for name, split in (splits or {"all": None}).items()
        }
    splits = splits or {name: x.images for name, x in phrases.items()}
    counts = {k: describe_split(x, vocabulary) for k, x in splits.items()}
    for name, regions in phrases.items():
        counts[name] |= describe_phrases(regions)
    check_splits(splits, problems)
    unused = check_photos(options, splits, problems) if options.images else ""
    problems = list(dict.fromkeys(problems))  # Splits may share a file.
    print_report(counts, unused, problems)
    if options.json:
        report = {"splits": counts, "problems": [*map(vars, problems)]}
        files.write_json(options.json, report)
    return 1 if problems else 0
