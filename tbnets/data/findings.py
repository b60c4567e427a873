"""Finds properties of a data set that make training or metrics worse.

A finding is not an error: the data can be read, and training runs.
"""

import collections
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from tbnets.checks import numbered, text_ids
from tbnets.data import duplicates
from tbnets.data.captions import CaptionedImages
from tbnets.files import shown
from tbnets.text.vocabulary import count_words

MOST_EXAMPLES = 3
LONG = 5, 40
"""A caption is long if it has more words than 5 times the median and 40."""
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
_LANGUAGES = collections.defaultdict(list)
for _name, _words in _STOP_WORDS.items():
    for _word in _words.split():
        _LANGUAGES[_word].append(_name)
_TWO_SPLITS = (
    "The metrics of one split count a photo that training has used, so they "
    "are too high.",
    "Remove one photo of each pair, or put both into the same split.",
)
_ONE_SPLIT = (
    "The loss pushes the captions of one photo away from the other photo, and "
    "the metrics count them as wrong.",
    "List each photo once, with the captions of both.",
)
_SCENE = (_ONE_SPLIT[0], "Remove one photo of each pair if there are many.")
_KINDS = {
    "same_file_in_two_splits": (
        "pair of equal files in two splits",
        _TWO_SPLITS,
    ),
    "same_file": ("pair of equal files in one split", _ONE_SPLIT),
    "near_copy_in_two_splits": (
        "pair of near-copies in two splits",
        _TWO_SPLITS,
    ),
    "near_copy": ("pair of near-copies in one split", _ONE_SPLIT),
    "one_scene_in_two_splits": (
        "pair of photos of one scene in two splits",
        _TWO_SPLITS,
    ),
    "one_scene": ("pair of photos of one scene in one split", _SCENE),
    "shared_captions": (
        "caption that several images share",
        (
            "The loss pushes the caption away from all images but its own, and "
            "the metrics count the other images as wrong.",
            "Train with --equal_texts_match, which matches the caption with "
            "all its images, or remove captions that fit many images.",
        ),
    ),
    "short_captions": (
        "caption of one word or none",
        (
            "The caption fits many images, and the loss pushes it away from "
            "all but its own. Captions without words have equal embeddings.",
            "Remove these captions, or write sentences.",
        ),
    ),
    "long_captions": (
        f"caption of more than {LONG[1]} words and {LONG[0]} times the median",
        (
            "Batches are padded to the longest caption, so training needs "
            "more time and memory.",
            "Shorten these captions, or divide them into sentences.",
        ),
    ),
    "other_languages": (
        "caption in another language than most captions",
        (
            "Words of different languages share no vectors, so rare languages "
            "are learned badly.",
            "Remove these captions, or train a model for each language.",
        ),
    ),
    "images_without_captions": (
        "image without captions",
        (
            "Training leaves the image out. In the metrics it is a candidate "
            "for captions, but not a query.",
            "Add captions, or remove the image.",
        ),
    ),
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A kind of problem that does not prevent training.

    `kind` is a key, such as "near_copy". There are at most `MOST_EXAMPLES`
    lines of examples, with split, id and text. `detail` is a remark, or "".
    """

    kind: str
    count: int
    examples: Sequence[str]
    detail: str = ""

    def __str__(self):
        """Returns the lines of the report."""
        title, (effect, advice) = _KINDS[self.kind]
        noun, space, rest = title.partition(" ")
        plural = noun + "s" * (self.count != 1)
        return "\n  ".join(
            [
                f"{self.count} {plural}{space}{rest}{self.detail}",
                *self.examples,
                effect,
                advice,
            ]
        )


@dataclasses.dataclass(frozen=True)
class Photos:
    """The photos of all splits.

    `names` are n pairs (split, id), `looks` n `duplicates.Look`s, and
    `features` `[n, dim]`, or None.
    """

    names: Sequence[tuple[str, str]]
    looks: Sequence[duplicates.Look]
    features: np.ndarray | None = None


class _Pairs:
    """Counts pairs of photos by kind and keeps the most similar as examples."""

    def __init__(self, photos, kind):
        self._names, self._kind = photos.names, kind
        numbers = {split: i for i, (split, _) in enumerate(photos.names)}
        self._splits = np.array([numbers[split] for split, _ in photos.names])
        self._counts = collections.Counter()
        self._best = collections.defaultdict(list)

    def add(self, first, second, similarities):
        crosses = self._splits[first] != self._splits[second]
        for ending in ("_in_two_splits", ""):
            (chosen,) = np.nonzero(crosses == bool(ending))
            kind = self._kind + ending
            self._counts[kind] += len(chosen)
            order = np.argsort(-similarities[chosen], kind="stable")
            chosen = chosen[order[:MOST_EXAMPLES]]
            some = zip(similarities[chosen], first[chosen], second[chosen])
            best = sorted([*self._best[kind], *some], key=lambda pair: -pair[0])
            self._best[kind] = best[:MOST_EXAMPLES]

    def findings(self):
        for kind, count in self._counts.items():
            if count:
                lines = [
                    f"{_name(self._names[one])} and {_name(self._names[two])}, "
                    f"similarity {similarity:.2f}"
                    for similarity, one, two in self._best[kind]
                ]
                yield Finding(kind, count, lines)


def _name(pair):
    split, key = pair
    return f"{split} {shown(key)}"


def photo_findings(photos: Photos) -> list[Finding]:
    """Returns the pairs of equal files, near-copies and photos of one scene.

    Photos of one scene require `photos.features`.
    """
    files, copies, scenes = (
        _Pairs(photos, kind) for kind in ("same_file", "near_copy", "one_scene")
    )
    good = [row for row, look in enumerate(photos.looks) if not look.fault]
    if not good:
        return []
    good = np.array(good)
    digests = numbered(photos.looks[row].digest for row in good)
    _, first = np.unique(digests, return_index=True)
    copy_rows = np.flatnonzero(first[digests] != np.arange(len(good)))
    originals = good[first[digests[copy_rows]]]
    files.add(originals, good[copy_rows], np.ones(len(copy_rows)))
    rows = good[first]
    lines = duplicates.contours([photos.looks[row].grey for row in rows])
    least = duplicates.NEAR_COPY
    for one, two, values in duplicates.similar_pairs((lines, least)):
        copies.add(rows[one], rows[two], values)
    if photos.features is not None:
        vectors = duplicates.unit_roots(photos.features[rows])
        limits = (lines, duplicates.ALIKE), (vectors, duplicates.ONE_SCENE)
        for one, two, values in duplicates.similar_pairs(*limits):
            new = np.einsum("ij,ij->i", lines[one], lines[two]) < least
            scenes.add(rows[one[new]], rows[two[new]], values[new])
    return [x for pairs in (files, copies, scenes) for x in pairs.findings()]


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
    return collections.Counter(
        language for word in set(words) for language in _LANGUAGES.get(word, ())
    )


def _clearest(languages):
    """Returns the language with the most stop words, at least 2, or None."""
    (name, most), (_, second) = [*languages.most_common(2), *2 * [("", 0)]][:2]
    return name if most > max(1, second) else None


@functools.cache
def _script(letter):
    script = unicodedata.name(letter, "other").split()[0].capitalize()
    is_han = script in ("Cjk", "Hiragana", "Katakana")
    return "Chinese or Japanese" if is_han else script
