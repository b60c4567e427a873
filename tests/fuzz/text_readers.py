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
from tbnets.text.trees import trees_of
from tbnets.text.vocabulary import Vocabulary
from tbnets.text.word_vectors import read_word_vectors
from tests.data.test_layouts import FOLDER, expected_captions
from tests.fuzz.reader import both_ways, reader_of

WORDS = ("dog", "cat", "don't", "caf\u00e9")
TREES = ("(NP (DT a) (NN dog))", "(S (NP (NNS cats)) (VP (VBP sit)) (. .))")
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
PARSED = [
    {"id": f"{i}.jpg#0", "caption": f"c {i}", "tree": tree, "fallback": True}
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


def _layout(folder):
    """Returns the content of each file in a folder of `tests/data/layouts`."""
    paths = sorted((FOLDER / folder).iterdir())
    return {path.name: path.read_bytes() for path in paths}


def _captions(layout, name=None):
    """Returns the reader of a layout's captions. The user names one file."""
    contents = _layout(layout)
    name = next(iter(contents)) if name is None else name
    split = next(iter(expected_captions(f"{layout}/{name}".rstrip("/"))))

    def read(folder):
        CaptionSource(folder / name).splits()
        return both_ways(
            lambda problems: read_captions(folder / name, split, problems)
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


def _phrases(contents, name):
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


CAPTIONS = {
    "coco": "coco/captions_val2017.json",
    "karpathy": "karpathy/dataset_flickr8k.json",
    "mapping": "flickr30k/flickr30k.json",
    "records": "blip/flickr30k_test.json",
    "lines": "imagefolder/metadata.jsonl",
    "conversations": "llava/messages.jsonl",
    "csv": "huggingface/flickr_annotations_30k.csv",
    "bars": "kaggle/results.csv",
    "tabs": "wit/wit_v1.train.all-00000-of-00010.tsv",
    "token": "flickr8k/Flickr8k.token.txt",
    "references": "refcoco/refs.json",
    "precomputed": "precomp/",
}
"""Maps a format to a file of `tests/data/layouts`."""
READERS = {
    **{
        f"captions_{name}": _captions(*path.split("/"))
        for name, path in CAPTIONS.items()
    },
    "entities": reader_of(
        {"Sentences/0.txt": SENTENCES, "Annotations/0.xml": ANNOTATION},
        _read_entities,
    ),
    "phrase_table": _phrases({"p.jsonl": _lines(PHRASES)}, "p.jsonl"),
    "phrases_of_regions": _phrases(
        _layout("visual_genome"), "region_descriptions.json"
    ),
    "phrases_of_references": _phrases(_layout("refcoco"), "refs.json"),
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
    "vocabulary": reader_of(
        {"vocabulary.txt": "\n".join(["", "[UNK]", *WORDS, ""])},
        lambda folder: Vocabulary.load(folder / "vocabulary.txt").words,
    ),
    "word_vectors_glove": _word_vectors("vectors.txt", GLOVE),
    "word_vectors_binary": _word_vectors("vectors.bin", BINARY),
}
