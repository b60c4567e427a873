"""Readers of texts: captions, phrases, trees, word vectors, lists."""

import json

import numpy as np

from tbnets.data.captions import CaptionSource, read_captions
from tbnets.data.entities import (
    read_annotations,
    read_boxes,
    read_sentences,
)
from tbnets.data.photos import listed_rows
from tbnets.data.phrases import read_phrases
from tbnets.text import parsing
from tbnets.text.trees import trees_of
from tbnets.text.vocabulary import Vocabulary
from tbnets.text.word_vectors import read_word_vectors
from tests.data.test_layouts import FOLDER, LAYOUTS, expected_captions
from tests.fuzz.damage import npy
from tests.fuzz.reader import both_ways, reader_of

WORDS = ("dog", "cat", "don't", "caf\u00e9")
TREES = ("(NP (DT a) (NN dog))", "(S (NP (NNS cats)) (VP (VBP sit)) (. .))")
FLICKR = {
    "Flickr.token.txt": "".join(
        f"{i}.jpg#{j}\tA {WORDS[j]} in picture {i} .\n"
        for i in range(3)
        for j in range(2)
    ),
    "Flickr.trainImages.txt": "0.jpg\n2\n",
    "Flickr.devImages.txt": "1.jpg\n",
}
PRECOMPUTED = {
    "train_caps.txt": "".join(f"A {word} .\n" for word in WORDS),
    "train_ids.txt": "0.jpg\n1.jpg\n",
    "train_ims.npy": npy(np.eye(2, 3, dtype=np.float32)),
}
SENTENCES = (
    "[/EN#1/people A man] with [/EN#2/other/animals two dogs] .\n"
    "[/EN#0/notvisual It] is [/EN#3/scene outside] .\n"
)
ANNOTATION = """<annotation>
<filename>0.jpg</filename>
<size><width>100</width><height>80</height><depth>3</depth></size>
<object><name>1</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>50</xmax>
<ymax>60</ymax></bndbox></object>
<object><name>2</name><name>4</name><bndbox><xmin>10</xmin><ymin>20</ymin>
<xmax>90</xmax><ymax>80</ymax></bndbox></object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>
"""
PHRASES = [
    {
        "image": "0.jpg",
        "phrase": "a red ball",
        "box": [10, 20.5, 60, 70],
        "caption": "A boy kicks a red ball .",
        "chain": 3,
        "type": ["toys", "other"],
        "width": 100,
        "height": 80,
    },
    {"image": "1.jpg", "phrase": "a dog", "box": [0, 0, 5, 5]},
]
REGIONS = {
    "region_descriptions.json": [
        {
            "id": 1,
            "regions": [
                {"x": 2, "y": 3, "width": 9, "height": 8, "phrase": "a dog"},
                {"x": -2, "y": 3, "width": 9, "height": 8, "phrase": "a cat"},
            ],
        }
    ],
    "image_data.json": [
        {"image_id": 1, "width": 20, "height": 9, "url": "https://x/VG/1.jpg"}
    ],
}
REFERENCES = {
    "refs.json": [
        {
            "ann_id": 3,
            "image_id": 1,
            "split": "val",
            "sentences": [{"sent": "left dog"}, {"sent": "the dog"}],
        }
    ],
    "instances.json": {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 8}],
        "annotations": [{"id": 3, "bbox": [0, 1.5, 3, 4]}],
    },
}
PARSED = [
    {"id": f"{i}.jpg#0", "caption": f"c {i}", "tree": tree, "fallback": True}
    for i, tree in enumerate(TREES)
]
CACHED = [
    {"parser": "embedded", "caption": f"c {i}", "tree": tree, "failure": ""}
    for i, tree in enumerate(TREES)
]
VECTORS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
GLOVE = "".join(
    f"{word} {' '.join(map('{:.4f}'.format, row))}\n"
    for word, row in zip(WORDS, VECTORS)
)
BINARY = b"4 3\n" + b"".join(
    f"{word} ".encode() + row.astype("<f4").tobytes() + b"\n"
    for word, row in zip(WORDS, VECTORS)
)


def _lines(values):
    return "".join(json.dumps(value) + "\n" for value in values)


def _dumped(contents):
    return {name: json.dumps(value) for name, value in contents.items()}


def _captions(contents, split, name=None):
    """Returns the reader of a caption file, by default the first one."""
    name = next(iter(contents)) if name is None else name

    def read(folder):
        CaptionSource(folder / name).splits()
        return both_ways(
            lambda found: read_captions(folder / name, split, found)
        )

    return reader_of(contents, read)


def _read_entities(folder):
    sentences = folder / "Sentences/0.txt"
    annotation = folder / "Annotations/0.xml"
    return (
        both_ways(lambda problems: read_phrases(folder, None, problems)),
        both_ways(lambda problems: read_sentences(sentences, problems)),
        both_ways(lambda problems: read_annotations(annotation, problems)),
        read_boxes(folder / "Annotations", "0.jpg", (200, 160)),
    )


def _phrases(contents):
    """Returns the reader of phrases whose first file the user names."""
    name = next(iter(contents))
    return reader_of(
        contents,
        lambda folder: both_ways(
            lambda problems: read_phrases(folder / name, None, problems)
        ),
    )


def _word_vectors(name, content):
    def read(folder):
        found = read_word_vectors(folder / name, [*WORDS, "xyzzy"])
        return found.words, found.vectors

    return reader_of({name: content}, read)


READERS = {
    **{
        f"captions_{path.name}": _captions(
            {path.name: path.read_text(encoding="utf-8")},
            next(iter(expected_captions(name))),
        )
        for name, path in ((name, FOLDER / name) for name in LAYOUTS)
        if path.suffix in (".json", ".jsonl", ".csv", ".tsv", ".txt")
        and path.parent.name not in ("flickr8k", "refcoco")
    },
    "captions_references": _captions(_dumped(REFERENCES), "val"),
    "captions_flickr": _captions(FLICKR, "train"),
    "captions_precomputed": _captions(PRECOMPUTED, "train", ""),
    "entities": reader_of(
        {"Sentences/0.txt": SENTENCES, "Annotations/0.xml": ANNOTATION},
        _read_entities,
    ),
    "phrase_table": _phrases({"phrases.jsonl": _lines(PHRASES)}),
    "phrases_of_regions": _phrases(_dumped(REGIONS)),
    "phrases_of_references": _phrases(_dumped(REFERENCES)),
    "photo_list": reader_of(
        {"list.txt": "0.jpg\n1\n"},
        lambda folder: listed_rows(
            ["0.jpg", "1_ab.jpg", "2.jpg"], folder / "list.txt"
        ),
    ),
    "trees": reader_of(
        {"trees.jsonl": _lines(PARSED)},
        lambda folder: trees_of(folder / "trees.jsonl", ["c 0", "c 1"]),
    ),
    "gold_trees": reader_of(
        {"0.txt": "\n".join(TREES)},
        lambda folder: trees_of(folder, ["a dog", "cats sit ."]),
    ),
    "parses": reader_of(
        {"cache.jsonl": _lines(CACHED)},
        lambda folder: parsing._read_cache(folder / "cache.jsonl", "embedded"),
    ),
    "vocabulary": reader_of(
        {"vocabulary.txt": "\n".join(["", "[UNK]", *WORDS, ""])},
        lambda folder: Vocabulary.load(folder / "vocabulary.txt").words,
    ),
    "word_vectors_glove": _word_vectors("vectors.txt", GLOVE),
    "word_vectors_text": _word_vectors("vectors.txt", "4 3\n" + GLOVE),
    "word_vectors_binary": _word_vectors("vectors.bin", BINARY),
}
