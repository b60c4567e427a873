"""Readers of texts: captions, phrases, trees, word vectors, lists."""

import functools
import json

import numpy as np

from tbnets.data.captions import list_splits, read_captions
from tbnets.data.entities import read_annotations, read_boxes
from tbnets.data.photos import listed_rows
from tbnets.data.phrase_tables import read_sentences
from tbnets.data.phrases import read_phrases
from tbnets.data.store.joining import join, take_share, tell_file
from tbnets.text import parsing
from tbnets.text.trees import trees_of
from tbnets.text.vocabulary import Vocabulary
from tbnets.text.word_vectors import read_word_vectors
from tests.fuzz.reader import Reader, both_ways

WORDS = ("dog", "cat", "don't", "caf\u00e9")
TREES = ("(NP (DT a) (NN dog))", "(S (NP (NNS cats)) (VP (VBP sit)) (. .))")
SPLIT_OF = ("train", "val", "test")
IMAGES = {
    "images": [
        {
            "filename": f"{i}.jpg",
            "filepath": "photos",
            "split": split,
            "imgid": i,
            "sentences": [
                {"raw": f"A {word} is here.", "tokens": [word], "sentid": j}
                for j, word in enumerate(WORDS[i : i + 2])
            ],
        }
        for i, split in enumerate(SPLIT_OF)
    ],
    "dataset": "tiny",
}
COCO = {
    "info": {"year": 2014},
    "images": [{"id": 7 + i, "file_name": f"{i}.jpg"} for i in range(3)],
    "annotations": [
        {"id": 20 + i, "image_id": 7 + i // 2, "caption": f"A {WORDS[i % 4]} ."}
        for i in range(6)
    ],
}
BY_NAME = {
    f"{i}.jpg": ["A dog .", f"A {WORDS[i]} .", f"photos/{i}.jpg"]
    for i in range(3)
}
TOKENS = "".join(
    f"{i}.jpg#{j}\tA {WORDS[j]} in picture {i} .\n"
    for i in range(3)
    for j in range(2)
)
ROWS = [
    ("0.jpg", "A dog.", "train"),
    ("0.jpg", 'Two "dogs", one cat.', "train"),
    ("1.jpg", "Ein H\u00fcndchen.", "val"),
]
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
CACHED = [
    {"parser": "embedded", "caption": f"c {i}", "tree": tree, "failure": ""}
    for i, tree in enumerate(TREES)
]


def _lines(values):
    return "".join(json.dumps(value) + "\n" for value in values)


def _write_text(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("utf-8"))


def _text_reader(name, text, read, **more):
    """Returns the `Reader` of one text file."""
    write = functools.partial(_write_text, name=name, text=text)
    return Reader(write, name, read, **more)


def _read_captions(folder, format, name, split):
    path = folder / name
    list_splits(format, path)
    return both_ways(
        lambda problems: read_captions(format, path, split, problems)
    )


def _captions(format, name, text, split="all"):
    read = functools.partial(
        _read_captions, format=format, name=name, split=split
    )
    return _text_reader(name, text, read)


def _write_flickr(folder):
    _write_text(folder, "Flickr.token.txt", TOKENS)
    _write_text(folder, "Flickr.trainImages.txt", "0.jpg\n2\n")
    _write_text(folder, "Flickr.devImages.txt", "1.jpg\n")


def _write_precomputed(folder):
    lines = [f"A {word} ." for word in WORDS]
    _write_text(folder, "train_caps.txt", "\n".join(lines) + "\n")
    _write_text(folder, "train_ids.txt", "0.jpg\n1.jpg\n")
    np.save(folder / "train_ims.npy", np.eye(2, 3, dtype=np.float32))


_FLICKR = functools.partial(
    _read_captions, format="flickr", name="Flickr.token.txt", split="train"
)
_PRECOMPUTED = functools.partial(
    _read_captions, format="precomputed", name="", split="train"
)


def _write_entities(folder):
    _write_text(folder, "Sentences/0.txt", SENTENCES)
    _write_text(folder, "Annotations/0.xml", ANNOTATION)


def _read_entities(folder):
    sentences = folder / "Sentences/0.txt"
    annotation = folder / "Annotations/0.xml"
    return (
        both_ways(lambda problems: read_phrases(folder, None, problems)),
        both_ways(lambda problems: read_sentences(sentences, problems)),
        both_ways(lambda problems: read_annotations(annotation, problems)),
        read_boxes(folder / "Annotations", "0.jpg", (200, 160)),
    )


def _read_phrase_table(folder):
    path = folder / "phrases.jsonl"
    return both_ways(lambda problems: read_phrases(path, None, problems))


def _read_list(folder):
    return listed_rows(["0.jpg", "1_ab.jpg", "2.jpg"], folder / "list.txt")


def _read_trees(folder):
    return trees_of(folder / "trees.jsonl", ["c 0", "c 1"])


def _write_share(folder):
    (folder / "t.jsonl").write_text(_lines(PARSED))
    _, told = take_share("1/1", PARSED)
    tell_file(folder / "t.jsonl", {"parser": "embedded", **told})


def _read_share(folder):
    joined = folder / "joined.jsonl"
    joined.unlink(missing_ok=True)
    return join([folder / "t.jsonl"], joined), joined.read_text()


def _read_gold_trees(folder):
    return trees_of(folder, ["a dog", "cats sit ."])


def _read_cache(folder):
    return parsing._read_cache(folder / "cache.jsonl", "embedded")


def _read_vocabulary(folder):
    return Vocabulary.load(folder / "vocabulary.txt").words


def _vectors():
    return np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def _vector_lines():
    return "".join(
        f"{word} {' '.join(map('{:.4f}'.format, row))}\n"
        for word, row in zip(WORDS, _vectors())
    )


def _write_binary(folder):
    rows = [
        f"{word} ".encode() + row.astype("<f4").tobytes() + b"\n"
        for word, row in zip(WORDS, _vectors())
    ]
    (folder / "vectors.bin").write_bytes(b"4 3\n" + b"".join(rows))


def _read_vectors(folder, name):
    found = read_word_vectors(folder / name, [*WORDS, "xyzzy"])
    return found.words, found.vectors


_TABLE = "image,caption,split\n" + "".join(
    f'{image},"{caption.replace(chr(34), chr(34) * 2)}",{split}\n'
    for image, caption, split in ROWS
)
_KEYS = ("image", "caption", "split")

READERS = {
    "captions_karpathy": _captions(
        "karpathy", "dataset.json", json.dumps(IMAGES), "train"
    ),
    "captions_coco": _captions("coco", "captions.json", json.dumps(COCO)),
    "captions_flickr30k_json": _captions(
        "flickr30k_json", "train.json", json.dumps(BY_NAME)
    ),
    "captions_flickr": Reader(_write_flickr, "Flickr.token.txt", _FLICKR),
    "captions_flickr_split": Reader(
        _write_flickr, "Flickr.trainImages.txt", _FLICKR
    ),
    "captions_precomputed": Reader(
        _write_precomputed, "train_caps.txt", _PRECOMPUTED
    ),
    "captions_precomputed_ids": Reader(
        _write_precomputed, "train_ids.txt", _PRECOMPUTED
    ),
    "captions_precomputed_array": Reader(
        _write_precomputed, "train_ims.npy", _PRECOMPUTED
    ),
    "captions_csv": _captions("table", "table.csv", _TABLE, "train"),
    "captions_tsv": _captions(
        "table", "table.tsv", "image\tcaption\n0.jpg\tA dog.\n1.jpg\tA cat.\n"
    ),
    "captions_jsonl": _captions(
        "table",
        "table.jsonl",
        _lines(dict(zip(_KEYS, row)) for row in ROWS),
        "train",
    ),
    "entities_sentences": Reader(
        _write_entities, "Sentences/0.txt", _read_entities
    ),
    "entities_xml": Reader(
        _write_entities, "Annotations/0.xml", _read_entities
    ),
    "phrase_table": _text_reader(
        "phrases.jsonl", _lines(PHRASES), _read_phrase_table
    ),
    "photo_list": _text_reader("list.txt", "0.jpg\n1\n", _read_list),
    "trees": _text_reader("trees.jsonl", _lines(PARSED), _read_trees),
    "share_of_trees": Reader(
        _write_share, "t.jsonl.share.json", _read_share, names=("t.jsonl",)
    ),
    "gold_trees": _text_reader("0.txt", "\n".join(TREES), _read_gold_trees),
    "parses": _text_reader("cache.jsonl", _lines(CACHED), _read_cache),
    "vocabulary": _text_reader(
        "vocabulary.txt", "\n".join(["", "[UNK]", *WORDS, ""]), _read_vocabulary
    ),
    "word_vectors_glove": _text_reader(
        "vectors.txt",
        _vector_lines(),
        functools.partial(_read_vectors, name="vectors.txt"),
    ),
    "word_vectors_text": _text_reader(
        "vectors.txt",
        "4 3\n" + _vector_lines(),
        functools.partial(_read_vectors, name="vectors.txt"),
    ),
    "word_vectors_binary": Reader(
        _write_binary,
        "vectors.bin",
        functools.partial(_read_vectors, name="vectors.bin"),
    ),
}
