"""Tests of the record of captions, and of its readers of all formats."""

import json
import tracemalloc

import numpy as np
import pytest

from tbnets.data import caption_formats
from tbnets.data.caption_formats import READERS
from tbnets.data.captions import (
    CaptionedImages,
    CaptionSource,
    read_captions,
    same_captions,
)
from tbnets.data.splits import NoSuchSplit
from tbnets.errors import InputError
from tbnets.files import ProblemError
from tests import refusals


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def columns(images):
    return (
        images.image_ids,
        images.captions,
        images.caption_to_image.tolist(),
    )


# Splits.


def karpathy_image(name, split, *captions, **more):
    sentences = [{"raw": text, "tokens": text.split()} for text in captions]
    return {"filename": name, "split": split, "sentences": sentences} | more


def karpathy(*images):
    return json.dumps({"images": images, "dataset": "x"})


def coco(images, annotations):
    return json.dumps(
        {
            "images": [{"id": k, "file_name": name} for k, name in images],
            "annotations": [
                {"id": 9, "image_id": k, "caption": text}
                for k, text in annotations
            ],
        }
    )


def precomputed(folder, rows, captions, ids=None, split="train"):
    write(folder / f"{split}_caps.txt", "".join(c + "\n" for c in captions))
    np.save(folder / f"{split}_ims.npy", np.asarray(rows, np.float32))
    if ids is not None:
        write(folder / f"{split}_ids.txt", "".join(i + "\n" for i in ids))
    return folder


def test_splits_have_equivalent_names_and_can_be_joined(tmp_path):
    images = [
        karpathy_image("b.jpg", "train", 'A "big", dog', "Two\u2028lines"),
        karpathy_image("a.jpg", "train", " A cat ", ""),
        # As float32 both are one number.
        karpathy_image("1000092796", "val", "A cow"),
        karpathy_image("1000092795", "val", "'"),
    ]
    path = write(tmp_path / "all.json", karpathy(*images))
    train = read_captions(path, "train")
    texts = ('A "big", dog', "Two\u2028lines", "A cat", "")
    assert columns(train) == (("b.jpg", "a.jpg"), texts, [0, 0, 1, 1])
    assert (train.split, train.path) == ("train", str(path))
    assert train.names == train.image_ids and train.has_ids
    for name in ("val", "dev", "validation"):
        images = read_captions(path, name)
        ids = ("1000092796", "1000092795")
        assert columns(images) == (ids, ("A cow", "'"), [0, 1])
        assert images.split == name
    both = read_captions(path, "val+train")
    assert CaptionSource(path).splits() == ("train", "val")
    assert both.captions == ("A cow", "'", *texts)
    assert both.caption_to_image.tolist() == [0, 1, 2, 2, 3, 3]
    with pytest.raises(NoSuchSplit, match="'train', 'val'"):
        read_captions(path, "test")
    with refusals.refused("split"):
        read_captions(path, "train+train")


# A bad entry is named, and the rest is read.

JSON_ROW = '{"image": "ok.jpg", "caption": "p"}\n'
# Text that follows a good entry, whose caption is p.
BAD_IMAGES = [
    karpathy_image("../x.jpg", "all"),
    karpathy_image(None, "all"),
    karpathy_image("x.jpg", None),
    ["x"],
]
BAD_COCO = [
    ("images[1]", [(1, "2.jpg")], []),
    ("images[1]", [(True, "2")], []),
    ("annotations[1]", [], [(3, "p")]),
]
BAD_ROWS = {
    "flickr": [
        "../a.jpg#0\tA dog\n",
        "a.jpg#2\tA do",
    ],
    "csv": [
        "a.jpg,p,q,train\n",
        "../a.jpg,p,train\n",
        "./ok.jpg,p,all\n",
    ],
    "jsonl": [
        '{"image": "a.jpg", "capt',
        json.dumps({"image": "a.jpg", "caption": "p" * 70_000}) + "\n",
        '{"image": "a", "caption": "p", "caption": "q"}\n',
    ],
}
HEADS = {
    "flickr": ("F.token", "ok.jpg#0\tp\n"),
    "csv": ("t.csv", "image,caption,split\nok.jpg,p,all\n"),
    "jsonl": ("t.jsonl", JSON_ROW),
}


def bad_files():
    """Yields (name, content, place of the one problem)."""
    good = karpathy_image("ok.jpg", "all", "p")
    for image in BAD_IMAGES:
        yield "d.json", karpathy(good, image), "images[1]"
    half = {"raw": "p \ud83d"}  # Of a surrogate pair.
    image = good | {"sentences": [*good["sentences"], half]}
    yield "d.json", karpathy(image), "images[0].sentences[1]"
    for place, images, annotations in BAD_COCO:
        content = coco([(1, "1.jpg"), *images], [(1, "p"), *annotations])
        yield "c.json", content, place
    content = json.dumps({"ok.jpg": {"text": "p"}, "a.jpg": 5})
    yield "f.json", content, "['a.jpg']"
    for kind, rows in BAD_ROWS.items():
        name, head = HEADS[kind]
        for row in rows:
            yield name, head + row, head.count("\n") + 1


@pytest.mark.parametrize("name, content, place", bad_files())
def test_the_error_of_a_bad_row_names_its_place_and_other_rows_are_read(
    tmp_path, name, content, place
):
    path = write(tmp_path / name, content)
    images, [problem] = refusals.read_past(
        lambda problems: read_captions(path, "all", problems)
    )
    assert images.captions == ("p",)
    assert problem.path == str(path)
    if isinstance(place, int):
        assert problem.line == place
    else:
        assert problem.message.startswith(f"{place}: ")


# What each format has of its own.


def test_an_image_in_two_splits_has_the_captions_of_each(tmp_path):
    path = tmp_path / "captions.csv"
    rows = "a.jpg,one,train", "b.jpg,two,test", "a.jpg,three,test"
    path.write_text("\n".join(["image,caption,split", *rows, ""]))
    read = {name: read_captions(path, name) for name in ("train", "test")}
    assert read["train"].captions == ("one",)
    assert read["test"].image_ids == ("b.jpg", "a.jpg")
    assert read["test"].captions == ("two", "three")


def test_flickr_lists_by_split_name_and_without_extension(tmp_path):
    path = write(tmp_path / "r.token", "1.jpg#0\tp\n2.jpg#0\tq\n")
    write(tmp_path / "train.txt", "2\n")
    write(tmp_path / "validation.txt", "1\n")
    assert CaptionSource(path).splits() == ("train", "validation")
    assert read_captions(path, "dev").image_ids == ("1.jpg",)
    write(tmp_path / "F.trainImages.txt", "1\n")
    with refusals.refused("path"):  # Two lists for one split.
        read_captions(path, "train")


@pytest.mark.parametrize(
    "listed, lines",
    [("b.jpg\n\nnone.jpg\nb.jpg\n", [3]), ("1\n", [1, None]), ("", [None])],
)
def test_listed_images_without_captions_raise_an_error(tmp_path, listed, lines):
    path = write(tmp_path / "r.token", "1.jpg#0\tp\n1.png#0\tq\nb.jpg#0\tr\n")
    lists = write(tmp_path / "train.txt", listed)
    problems = []
    with pytest.raises(ProblemError):
        read_captions(path, "train")
    read_captions(path, "train", problems)
    assert [(one.path, one.line) for one in problems] == [
        (str(lists), line) for line in lines
    ]


@pytest.mark.parametrize(
    "rows, ids, image_ids, owners",
    [
        # Without ids: three captions a row, one, or a run of equal rows.
        ([1, 2], None, ("0", "1"), [0, 0, 0, 1, 1, 1]),
        ([1, 2, 3, 4, 5, 6], None, tuple("012345"), [0, 1, 2, 3, 4, 5]),
        ([1, 1, 1, 2, 1, 1], None, ("0", "3", "4"), [0, 0, 0, 1, 2, 2]),
        # By ids, however alike the rows are.
        ([1] * 6, "xyxyzz", ("x", "y", "z"), [0, 0, 1, 1, 2, 2]),
    ],
)
def test_precomputed_rows_are_images_or_captions(
    tmp_path, rows, ids, image_ids, owners
):
    precomputed(tmp_path, np.array(rows)[:, None], "pqrstu", ids)
    images = read_captions(tmp_path, "train")
    said = tuple("prqstu") if ids else tuple("pqrstu")
    assert columns(images) == (image_ids, said, owners)
    assert images.has_ids == (ids is not None)


@pytest.mark.parametrize(
    "captions, ids, file, line",
    [
        ("pqrst", "xy", "caps", 5),
        ("pq", "x", "caps", None),
        ("pqrs", "xx", "ids", None),
        ("", "xy", "caps", 0),
    ],
)
def test_precomputed_captions_with_another_number_of_features(
    tmp_path, captions, ids, file, line
):
    precomputed(tmp_path, [[1], [1]], captions, ids)
    with refusals.at(tmp_path / f"train_{file}.txt", line):
        read_captions(tmp_path, "train")


@pytest.mark.parametrize(
    "mark, encoding", [(";", "utf-8"), (";", "utf-16"), ("\t", "utf-16")]
)
def test_table_as_a_spreadsheet_saves_it(tmp_path, mark, encoding):
    rows = ['"Image"', '"Caption"'], ["é.jpg", '"Two; dogs,\ta 犬"']
    text = "\r\n".join(map(mark.join, rows)) + "\r\n"
    path = write(tmp_path / "own.csv", text.encode(encoding))
    images = read_captions(path, "all")
    assert columns(images) == (("é.jpg",), ("Two; dogs,\ta 犬",), [0])
    if encoding == "utf-16":  # Half a letter is none.
        write(path, text.encode(encoding)[:-1])
        with refusals.at(path, 1):
            read_captions(path, "all")


def test_table_of_excel_in_cp1252_is_read_with_one_doubt(tmp_path):
    texts = ["caf\u00e9", "\u201cquoted\u201d \u2013 5 \u20ac", "plain"]
    rows = "".join(f"{n}.jpg;{text}\r\n" for n, text in enumerate(texts))
    path = write(
        tmp_path / "t.csv", f"image;caption\r\n{rows}".encode("cp1252")
    )
    problems = []
    images = read_captions(path, "all", problems)
    assert images.captions == tuple(texts)
    assert [problem.line for problem in problems] == [2]
    assert "2 lines as cp1252" in problems[0].message
    with pytest.warns(UserWarning, match="cp1252"):
        read_captions(path, "all")


def test_table_that_may_be_truncated_warns(tmp_path):
    path = write(tmp_path / "t.csv", "image,caption\na.jpg,p\nb.jpg,A do")
    with pytest.warns(UserWarning, match=r"t.csv:3: "):
        images = read_captions(path, "all")
    assert images.captions == ("p", "A do")
    problems = []
    read_captions(path, "all", problems)
    assert [problem.line for problem in problems] == [3]


def test_a_file_of_all_splits_is_read_once(tmp_path, monkeypatch):
    path, read = tmp_path / "t.csv", []
    lines = "image,caption,split\na.jpg,p,train\nb.jpg,q,test\n"
    write(path, lines)

    def reader(file):
        read.append(file.path)
        return caption_formats.read_table(file)

    monkeypatch.setitem(READERS, "table", reader)
    assert CaptionSource(path).splits() == ("train", "test")
    assert read_captions(path, "test").captions == ("q",)
    assert read_captions(path, "train").captions == ("p",)
    assert len(read) == 1
    write(path, lines + "c.jpg,r,train\n")
    assert read_captions(path, "train").captions == ("p", "r")
    write(path, lines + "c.jpg,r\n")  # Each call tells what is wrong.
    for _ in range(2):
        with refusals.at(path, 4):
            read_captions(path, "train")


def test_memory_is_proportional_to_the_size_of_the_file(tmp_path):
    content = json.dumps({f"{row}.jpg": f"a dog {row}" for row in range(3000)})
    path = write(tmp_path / "mapping.json", content)
    tracemalloc.start()
    read_captions(path, "all")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 22 * len(content)


# Paths.


@pytest.mark.parametrize(
    "name, kind",
    [
        ("none.json", FileNotFoundError),
        ("{split}.xml", (FileNotFoundError, NoSuchSplit)),
        ("", IsADirectoryError),
        ("there.xlsx", InputError),
    ],
)
def test_the_error_of_a_missing_file_contains_its_path(tmp_path, name, kind):
    write(tmp_path / "there.xlsx", "x")
    source = CaptionSource(tmp_path / name)
    for read in (source.splits, lambda: source.read("train")):
        with pytest.raises(kind) as error:
            read()
        assert str(tmp_path) in str(error.value)


# Real data.


@pytest.mark.real_data
def test_flickr8k_is_the_same_in_three_formats(data_root):
    folder = data_root / "flickr8k"
    karpathy, flickr, vse = (
        read_captions(folder / name, "dev+test")
        for name in (
            "dataset_flickr8k.json",
            "Flickr8k.token.txt",
            "precomp_squeezenet",
        )
    )
    assert karpathy.captions_per_image.tolist() == [5] * 2000
    assert columns(karpathy) == columns(flickr) == columns(vse)


def captioned(images, captions, rows):
    return CaptionedImages(
        tuple(images), captions, rows, "test", "captions.json"
    )


def test_captions_of_two_sources_are_matched_within_their_photo():
    said = ("A dog .", "a cat", "a grey dog", "it", *["a dog"] * 3)
    marked = captioned("xyz", said, [0, 0, 1, 1, 2, 2, 2])
    # Photo y stands first; `a cat` is of x and of y.
    said = ("a cat", "a gray dog", "A cat!", "a dog", "a dog", "A dog.")
    own = captioned("yxz", said, [0, 0, 1, 1, 2, 2])
    rows, is_exact = same_captions(marked, own, [1, 0, 2])
    # `it` takes what is left of y. No caption is found twice.
    assert rows.tolist() == [3, 2, 1, 0, 4, 5, -1]
    assert is_exact.tolist() == [True, True, False, False, True, True, False]
