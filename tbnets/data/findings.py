"""Finds properties of a data set that make training or metrics worse.

A finding is not an error: the data can be read, and training runs.
"""

import collections
import dataclasses
import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import PIL.Image

from tbnets.checks import numbered, text_ids
from tbnets.data.captions import CaptionedImages
from tbnets.data.images import BrokenImageError, read_content, read_photo
from tbnets.files import shown
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores
from tbnets.text.vocabulary import count_words

MOST_EXAMPLES = 3
LONG = 5, 40
"""A caption is long if it has more than 5 times the median number of words, and
more than 40 words."""
NEAR_COPY = 0.92
"""Minimum similarity of the contours of near-copies. Two different photos of
Flickr8k have a similarity of at most 0.79. A photo and a copy that is resized,
saved as JPEG of quality 20, or cropped by 2 % on each side have at least 0.95.
"""
ALIKE = 0.4
"""Minimum similarity of the contours of photos of one scene. About one in a
thousand pairs of Flickr8k photos reaches it, so features are compared as well.
"""
ONE_SCENE = 0.88
"""Minimum cosine similarity of the features of photos of one scene."""
_SIDE = 9
_TILE = 2048
_STOP_WORDS = {
    "Dutch": "een het van op met zijn aan naar voor bij die niet twee",
    "English": "a the is are on with and of at his her in to two while from",
    "French": "un une le les des du et est sur dans avec qui deux au aux",
    "German": "ein eine einem einen der das und ist mit auf im zwei von dem",
    "Italian": "un una il di che sono su con mentre della nel due gli uno",
    "Polish": "na w z i się jest przez dwa przy po nad kobieta pies",
    "Portuguese": "um uma o os na com em duas está são da ao dois pela",
    "Spanish": "un una el los las con en y de está por dos su al del",
    "Turkish": "bir ve bu ile iki için üzerinde adam çocuk kadın olan",
}
_STOP_WORD_SETS = {key: {*_STOP_WORDS[key].split()} for key in _STOP_WORDS}
_TWO_SPLITS = (
    "The metrics of one split count a photo that training has used, so they "
    "are too high.",
    "Remove one photo of each pair, or put both into the same split.",
)
_ONE_SPLIT = (
    "The loss pushes the captions of one photo away from the other photo, and "
    "the metrics count them as wrong."
)
_ONCE = "List each photo once, with the captions of both."
_KINDS = {
    "same_file_in_two_splits": (
        "pair of equal files in two splits",
        *_TWO_SPLITS,
    ),
    "same_file": ("pair of equal files in one split", _ONE_SPLIT, _ONCE),
    "near_copy_in_two_splits": (
        "pair of near-copies in two splits",
        *_TWO_SPLITS,
    ),
    "near_copy": ("pair of near-copies in one split", _ONE_SPLIT, _ONCE),
    "one_scene_in_two_splits": (
        "pair of photos of one scene in two splits",
        *_TWO_SPLITS,
    ),
    "one_scene": (
        "pair of photos of one scene in one split",
        _ONE_SPLIT,
        "Remove one photo of each pair if there are many.",
    ),
    "shared_captions": (
        "caption that several images share",
        "The loss pushes the caption away from all images but its own, and "
        "the metrics count the other images as wrong.",
        "Train with --equal_texts_match, which matches the caption with all "
        "its images, or remove captions that fit many images.",
    ),
    "short_captions": (
        "caption of one word or none",
        "The caption fits many images, and the loss pushes it away from all "
        "but its own. Captions without words have equal embeddings.",
        "Remove these captions, or write sentences.",
    ),
    "long_captions": (
        f"caption of more than {LONG[1]} words and {LONG[0]} times the median",
        "Batches are padded to the longest caption, so training needs more "
        "time and memory.",
        "Shorten these captions, or divide them into sentences.",
    ),
    "other_languages": (
        "caption in another language than most captions",
        "Words of different languages share no vectors, so rare languages are "
        "learned badly.",
        "Remove these captions, or train a model for each language.",
    ),
    "images_without_captions": (
        "image without captions",
        "Training leaves the image out. In the metrics it is a candidate for "
        "captions, but not a query.",
        "Add captions, or remove the image.",
    ),
}
"""Maps each kind of finding to its name, its effect and advice."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A kind of problem that does not prevent training.

    `kind` is a name such as "near_copy". `examples` contains at most
    `MOST_EXAMPLES` lines of text. `detail` is added to the title.
    """

    kind: str
    count: int
    examples: Sequence[str]
    detail: str = ""

    def __str__(self):
        """Returns the lines of the report."""
        title, *sentences = _KINDS[self.kind]
        noun, space, rest = title.partition(" ")
        plural = noun + "s" * (self.count != 1)
        title = f"{self.count} {plural}{space}{rest}{self.detail}"
        return "\n  ".join([title, *self.examples, *sentences])


class Look(NamedTuple):
    """The properties of a photo that are compared.

    `fault` is the reason why the file is not a photo, or None. `digest` is a
    hash of the file. `grey`, uint8 `[9, 9]`, contains the average grey value of
    each cell in a grid.
    """

    fault: str | None
    digest: bytes
    grey: np.ndarray


def look_at(path) -> Look:
    """Decodes a photo once and returns its `Look`."""
    try:
        content = read_content(path)
        photo = PIL.Image.fromarray(read_photo(content)).convert("L")
    except BrokenImageError as error:
        return Look(error.reason, b"", np.zeros((_SIDE, _SIDE), np.uint8))
    grey = photo.resize((_SIDE, _SIDE), PIL.Image.Resampling.BOX)
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return Look(None, digest, np.asarray(grey))


def look_at_all(paths) -> Iterator[Look]:
    """Yields the `Look` of each photo, computed in parallel."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        with progress_bar(len(paths), "photos", "photo") as bar:
            for look in pool.map(look_at, paths):
                bar.update()
                yield look


def contours(greys) -> np.ndarray:
    """Describes photos by the differences between neighbouring cells.

    `greys` contains the `Look.grey` of n photos. Returns float32 `[n, dim]`,
    the signed square roots of the horizontal and vertical differences,
    L2-normalised. The row of a photo without differences is 0.
    """
    greys = np.asarray(greys, np.float32)
    steps = [np.diff(greys, axis=axis) for axis in (1, 2)]
    steps = [step.reshape(len(greys), -1) for step in steps]
    return unit_roots(np.concatenate(steps, axis=1))


def unit_roots(rows) -> np.ndarray:
    """Returns the signed square roots of rows, L2-normalised unless 0."""
    roots = np.sqrt(np.abs(rows), dtype=np.float32)
    roots = np.copysign(roots, rows, out=roots)
    norms = np.sqrt(np.einsum("ij,ij->i", roots, roots))
    roots /= np.maximum(norms, 1e-12)[:, None]
    return roots


def similar_pairs(*limits) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the pairs of photos whose vectors of each kind are similar.

    Each of `limits` is a pair (rows, least): an L2-normalised float32 array
    `[n, dim]` with a vector per photo, and the minimum inner product. Yields
    arrays (first, second, similarity) with row numbers first < second and the
    inner product of the last kind. Memory use does not depend on the number of
    pairs.
    """
    starts = range(0, len(limits[0][0]), _TILE)
    tiles = [(one, two) for one in starts for two in starts if one <= two]
    with progress_bar(len(tiles), "pairs of photos", "tile") as bar:
        for one, two in tiles:
            is_similar = True
            for rows, least in limits:
                products = rows[one : one + _TILE] @ rows[two : two + _TILE].T
                is_similar = is_similar & (products >= least)
                if not is_similar.any():
                    break
            first, second = np.nonzero(is_similar)
            later = first + one < second + two
            first, second = first[later], second[later]
            if len(first):
                yield first + one, second + two, products[first, second]
            bar.update()


class Photo(NamedTuple):
    """A photo of a split. `features` is an array `[dim]`, or None."""

    split: str
    image_id: str
    look: Look
    features: np.ndarray | None = None


def _pair_findings(kind, photos, pairs):
    """Yields the `Finding`s of similar pairs, the most similar as examples.

    `pairs` yields arrays (first, second, similarity), where `first` and
    `second` are rows in `photos`.
    """
    splits = numbered(photo.split for photo in photos)
    counts, examples = collections.Counter(), collections.defaultdict(list)
    for first, second, similarities in pairs:
        crosses = splits[first] != splits[second]
        for ending in ("_in_two_splits", ""):
            (chosen,) = np.nonzero(crosses == bool(ending))
            counts[kind + ending] += len(chosen)
            order = np.argsort(-similarities[chosen], kind="stable")
            chosen = chosen[order[:MOST_EXAMPLES]]
            best = examples[kind + ending]
            best += zip(similarities[chosen], first[chosen], second[chosen])
            best.sort(key=lambda pair: -pair[0])
            del best[MOST_EXAMPLES:]
    for name in filter(counts.get, counts):
        lines = [
            f"{_name(photos[one][:2])} and {_name(photos[two][:2])}, "
            f"similarity {similarity:.2f}"
            for similarity, one, two in examples[name]
        ]
        yield Finding(name, counts[name], lines)


def _name(pair):
    split, key = pair
    return f"{split} {shown(key)}"


def photo_findings(photos: Sequence[Photo]) -> list[Finding]:
    """Returns findings about equal files, near-copies and photos of one scene.

    Photos of one scene are found only if all photos have features.
    """
    photos = [photo for photo in photos if not photo.look.fault]
    if not photos:
        return []
    digests = numbered(photo.look.digest for photo in photos)
    _, rows = np.unique(digests, return_index=True)
    originals = rows[digests]
    copies = np.flatnonzero(originals != np.arange(len(photos)))
    equal_files = originals[copies], copies, np.ones(len(copies))
    lines = contours([photos[row].look.grey for row in rows])
    least = NEAR_COPY
    near_copies = (
        (rows[one], rows[two], values)
        for one, two, values in similar_pairs((lines, least))
    )
    findings = [
        *_pair_findings("same_file", photos, [equal_files]),
        *_pair_findings("near_copy", photos, near_copies),
    ]
    features = [photos[row].features for row in rows]
    if len({np.shape(row) for row in features}) > 1 or features[0] is None:
        return findings
    vectors = unit_roots(np.stack(features))

    def scenes():
        limits = (lines, ALIKE), (vectors, ONE_SCENE)
        for one, two, values in similar_pairs(*limits):
            new = np.einsum("ij,ij->i", lines[one], lines[two]) < least
            yield rows[one[new]], rows[two[new]], values[new]

    return [*findings, *_pair_findings("one_scene", photos, scenes())]


def caption_findings(splits: Mapping[str, CaptionedImages]) -> list[Finding]:
    """Returns the findings about the captions of all splits."""
    captions, names = [], []
    for split, images in splits.items():
        captions += images.captions
        ids = [images.image_ids[row] for row in images.caption_to_image]
        names += [(split, key) for key in ids]
    lengths = count_words(captions)[1]
    least = max(LONG[1], LONG[0] * np.median(lengths)) if captions else 0
    findings = [
        _shared(captions, names),
        _of_captions("short_captions", lengths <= 1, captions, names),
        _of_captions("long_captions", lengths > least, captions, names),
        _other_languages(captions, names),
        _without_captions(splits),
    ]
    return [finding for finding in findings if finding.count]


def _of_captions(kind, mask, captions, names, detail=""):
    rows = np.flatnonzero(mask)
    examples = [
        f"{_name(names[row])}: {shown(captions[row])}"
        for row in rows[:MOST_EXAMPLES]
    ]
    return Finding(kind, len(rows), examples, detail)


def _shared(captions, names):
    owners = collections.defaultdict(dict)
    for number, caption, name in zip(text_ids(captions), captions, names):
        if caption:
            owners[number].setdefault(name[1], (caption, name))
    shared = [images for images in owners.values() if len(images) > 1]
    examples = []
    for images in sorted(shared, key=len, reverse=True)[:MOST_EXAMPLES]:
        (caption, one), (_, two), *others = images.values()
        more = f" and {len(others)} more" * bool(others)
        examples.append(f"{shown(caption)}: {_name(one)}, {_name(two)}{more}")
    return Finding("shared_captions", len(shared), examples)


def _without_captions(splits):
    names = [
        (split, images.image_ids[row])
        for split, images in splits.items()
        for row in np.flatnonzero(images.captions_per_image == 0)
    ]
    examples = [_name(name) for name in names[:MOST_EXAMPLES]]
    return Finding("images_without_captions", len(names), examples)


def _other_languages(captions, names):
    counts = [_languages(caption) for caption in captions]
    best = [_clearest(languages) for languages in counts]
    totals = collections.Counter(filter(None, best)).most_common()
    main = totals[0][0] if totals else None
    mask = np.array(
        [
            language not in (None, main) and not languages[main]
            for language, languages in zip(best, counts)
        ],
        bool,
    )
    found = collections.Counter(best[row] for row in np.flatnonzero(mask))
    parts = [f"{name} {count}" for name, count in found.most_common()]
    detail = f" ({main}): {', '.join(parts)}"
    return _of_captions("other_languages", mask, captions, names, detail)


def _languages(caption):
    """Counts a caption's stop words by language, or its letters by script."""
    words = re.findall(r"[^\W\d_]+", caption.casefold())
    scripts = collections.Counter(map(_script, "".join(words)))
    if scripts and not caption.isascii():
        script = max(scripts, key=scripts.get)
        if script != "Latin":
            return collections.Counter({script: scripts[script]})
    sets = _STOP_WORD_SETS.items()
    return collections.Counter({k: len(x.intersection(words)) for k, x in sets})


def _clearest(languages):
    (name, most), (_, second) = [*languages.most_common(2), *2 * [("", 0)]][:2]
    return name if most > max(1, second) else None


@functools.cache
def _script(letter):
    script = unicodedata.name(letter, "other").split()[0].capitalize()
    is_han = script in ("Cjk", "Hiragana", "Katakana")
    return "Chinese or Japanese" if is_han else script
