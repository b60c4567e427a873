import csv
import json

import numpy as np
import pytest

from tbnets.data import caption_readers
from tbnets.data.captions import (
    READERS,
    CaptionedImages,
    list_splits,
    read_captions,
)
from tbnets.files import Problem


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def karpathy_image(name, split, *captions, **more):
    sentences = [{"raw": text, "tokens": text.split()} for text in captions]
    image = {"filename": name, "split": split, "sentences": sentences}
    return {**image, **more}


def karpathy(path, *images):
    return write(path, json.dumps({"images": images, "dataset": "x"}))


def test_a_file_of_all_splits_is_read_once(tmp_path, monkeypatch):
    path, read = tmp_path / "t.csv", []
    lines = "image,caption,split\na.jpg,p,train\nb.jpg,q,test\n"
    write(path, lines)

    def reader(file, split):
        read.append(split)
        return caption_readers.read_table(file, split)

    monkeypatch.setitem(READERS, "table", reader)
    assert list_splits("table", path) == ("train", "test")
    assert read_captions("table", path, "test").captions == ("q",)
    assert read_captions("table", path, "train").captions == ("p",)
    assert read == [None]
    write(path, lines + "c.jpg,r,train\n")
    assert read_captions("table", path, "train").captions == ("p", "r")
    write(path, lines + "c.jpg,r\n")  # Each call tells what is wrong.
    for _ in range(2):
        with pytest.raises(ValueError, match="t.csv:4"):
            read_captions("table", path, "train")


@pytest.fixture
def karpathy_file(tmp_path):
    # Images 0..3 have 2, 0, 1 and 1 captions.
    return karpathy(
        tmp_path / "dataset.json",
        karpathy_image("b.jpg", "train", "A dog .", " A cat\t"),
        karpathy_image("a.jpg", "train"),
        karpathy_image("c.jpg", "val", "A cow"),
        karpathy_image("d.jpg", "restval", "  "),
    )


def columns(images):
    return (
        images.image_ids,
        images.captions,
        images.caption_to_image.tolist(),
    )


def fails(format, path, split="train"):
    """Returns the message at the first problem, and all problems."""
    with pytest.raises(ValueError) as error:
        read_captions(format, path, split)
    problems = []
    read_captions(format, path, split, problems)
    assert str(problems[0]) == str(error.value)
    return str(error.value), problems


# The record itself.


def example():
    # Image 0 has captions 0 and 3, image 1 none, image 2 captions 1 and 2.
    return CaptionedImages(
        image_ids=("x", "y", "z"),
        captions=("p", "q", "r", "s"),
        caption_to_image=np.asarray([0, 2, 2, 0]),
        split="train",
        path="here",
        file_names=("1/x.jpg", "1/y.jpg", "2/z.jpg"),
    )


def test_record_counts_captions_of_each_image():
    images = example()
    assert (images.num_images, images.num_captions) == (3, 4)
    assert images.captions_per_image.tolist() == [2, 0, 2]
    assert images.captions_per_image.dtype == np.int64
    rows = images.caption_rows()
    assert [row.tolist() for row in rows] == [[0, 3], [], [1, 2]]
    assert {row.dtype for row in rows} == {np.dtype(np.int64)}


def test_record_names_files_by_id_unless_told_otherwise():
    assert example().file_name(2) == "2/z.jpg"
    assert example().names[2] == "2/z.jpg"
    plain = CaptionedImages(("x.jpg",), (), np.zeros(0, int), "train", "here")
    assert plain.file_name(0) == "x.jpg"
    assert plain.captions_per_image.tolist() == [0]
    assert [row.tolist() for row in plain.caption_rows()] == [[]]


def test_captions_of_an_image_keep_their_order():
    # Captions 0, 2, 4, ... belong to image 0, the others to image 1.
    owners = np.arange(200) % 2
    captions = tuple(map(str, range(200)))
    images = CaptionedImages(("x", "y"), captions, owners, "s", "h")
    rows = images.caption_rows()
    assert rows[0].tolist() == list(range(0, 200, 2))
    assert rows[1].tolist() == list(range(1, 200, 2))


def test_record_without_images():
    images = CaptionedImages((), (), np.asarray([]), "train", "here")
    assert images.caption_rows() == []
    assert images.captions_per_image.tolist() == []


def test_subset_keeps_captions_with_their_images():
    some = example().subset([2, 0])
    assert columns(some) == (("z", "x"), ("q", "r", "p", "s"), [0, 0, 1, 1])
    assert some.file_names == ("2/z.jpg", "1/x.jpg")
    assert columns(example().subset([1])) == (("y",), (), [])
    with pytest.raises(ValueError, match="must hold rows from 0 to 2"):
        example().subset([-1])
    with pytest.raises(ValueError, match="unique"):
        example().subset([1, 1])


def test_record_cannot_be_changed():
    with pytest.raises(ValueError):
        example().caption_to_image[0] = 1
    with pytest.raises(AttributeError):
        example().split = "test"


@pytest.mark.parametrize(
    "ids, rows, names, message",
    [
        (("x", "x"), [0, 1], (), "`image_ids` must be unique.*'x' twice"),
        (("x", "y"), [0, 2], (), r"rows from 0 to 1.*\[1\]=2"),
        (("x", "y"), [-1, 1], (), r"\[0\]=-1"),
        (("x", "y"), [0], (), r"each of 2. Received.*shape=\(1,\)"),
        (("x", "y"), [0.0, 1.0], (), "dtype float64"),
        (("x", "y"), [0, 1], ("x",), "`file_names`.*length 1, 2 images"),
    ],
)
def test_record_refuses_what_does_not_fit(ids, rows, names, message):
    with pytest.raises(ValueError, match=message):
        CaptionedImages(ids, ("p", "q"), np.asarray(rows), "s", "h", names)


def test_neighbouring_ids_beyond_float32_stay_apart():
    # Both are 1000092800.0 as float32.
    ids = ("1000092795", "1000092796")
    images = CaptionedImages(ids, ("p", "q"), np.asarray([0, 1]), "s", "h")
    assert images.image_ids == ids


def test_unknown_format_lists_the_known_ones():
    with pytest.raises(ValueError, match="karpathy, flickr, coco.*'csv'"):
        read_captions("csv", "x", "train")
    assert set(READERS) >= {
        "karpathy",
        "flickr",
        "coco",
        "precomputed",
        "table",
    }


# Karpathy json.


def test_karpathy_reads_any_number_of_captions(karpathy_file):
    images = read_captions("karpathy", karpathy_file, "train")
    assert columns(images) == (
        ("b.jpg", "a.jpg"),
        ("A dog .", "A cat"),
        [0, 0],
    )
    assert images.split == "train"
    assert images.path == str(karpathy_file)
    assert images.file_names == ()


def test_karpathy_keeps_restval_apart_and_joins_on_demand(karpathy_file):
    assert list_splits("karpathy", karpathy_file) == (
        "train",
        "restval",
        "val",
    )
    images = read_captions("karpathy", karpathy_file, "train+restval")
    assert images.split == "train+restval"
    assert images.image_ids == ("b.jpg", "a.jpg", "d.jpg")
    assert images.captions == ("A dog .", "A cat", "")  # "  " is empty
    assert images.caption_to_image.tolist() == [0, 0, 2]


def test_joining_a_split_with_itself_is_refused(karpathy_file):
    with pytest.raises(ValueError, match="without common images"):
        read_captions("karpathy", karpathy_file, "train+train")


@pytest.mark.parametrize("name", ["val", "dev", "validation"])
def test_val_has_three_names(karpathy_file, name):
    images = read_captions("karpathy", karpathy_file, name)
    assert images.image_ids == ("c.jpg",)
    assert images.split == name


def test_missing_split_lists_those_there_are(karpathy_file):
    with pytest.raises(ValueError, match="'train', 'restval', 'val'.*=test"):
        read_captions("karpathy", karpathy_file, "test")


def test_karpathy_filepath_goes_before_the_name_only(tmp_path):
    path = karpathy(
        tmp_path / "coco.json",
        karpathy_image("1.jpg", "train", "p", filepath="train2014"),
        karpathy_image("2.jpg", "train", "q", filepath="val2014"),
    )
    images = read_captions("karpathy", path, "train")
    assert images.image_ids == ("1.jpg", "2.jpg")
    assert images.file_names == ("train2014/1.jpg", "val2014/2.jpg")


@pytest.mark.parametrize(
    "image, message",
    [
        (karpathy_image("../x.jpg", "train"), "leaves that folder"),
        (karpathy_image("/etc/x.jpg", "train"), "is absolute"),
        (karpathy_image("C:\\x.jpg", "train"), "is absolute"),
        (karpathy_image("a/../../x.jpg", "train"), "leaves that folder"),
        (karpathy_image("a\\..\\x.jpg", "train"), "It holds '..': write"),
        (karpathy_image("..a/../x.jpg", "train"), "It holds '..': write"),
        (karpathy_image("", "train"), "is empty"),
        (karpathy_image(None, "train"), "is not a string"),
        (karpathy_image("x.jpg", "train", filepath=".."), "leaves"),
        (karpathy_image("x.jpg", None), "expected 'split'.*found None"),
        (karpathy_image("ok.jpg", "val"), "no other .* has; found 'ok.jpg'"),
        ({"filename": "x", "split": "train"}, "list 'sentences'"),
        (["x"], r"expected an object; found \['x'\]"),
    ],
)
def test_karpathy_bad_image_is_named_and_the_rest_read(
    tmp_path, image, message
):
    path = karpathy(
        tmp_path / "d.json", karpathy_image("ok.jpg", "train", "p"), image
    )
    with pytest.raises(ValueError, match=message) as error:
        read_captions("karpathy", path, "train")
    assert f"{path}: images[1]" in str(error.value)
    problems = []
    images = read_captions("karpathy", path, "train", problems)
    assert images.image_ids[0] == "ok.jpg" and images.captions == ("p",)
    assert len(problems) == 1


def test_karpathy_bad_sentence_is_named_and_the_rest_read(tmp_path):
    image = karpathy_image("x.jpg", "train", "p", "q", "r")
    image["sentences"][1]["raw"] = 5
    path = karpathy(tmp_path / "d.json", image)
    message, problems = fails("karpathy", path)
    assert "images[0].sentences[1]: expected a caption" in message
    problems = []
    images = read_captions("karpathy", path, "train", problems)
    assert images.captions == ("p", "r")


def test_json_cut_in_half_names_line_and_column(karpathy_file, tmp_path):
    text = json.dumps(json.loads(karpathy_file.read_text()), indent=1)
    path = write(tmp_path / "half.json", text[: len(text) // 2])
    message, problems = fails("karpathy", path)
    line = problems[0].line
    assert 1 < line <= text.count("\n")
    assert message.startswith(f"{path}:{line}: expected JSON")
    assert "at column" in message and "looks truncated" in message
    with pytest.raises(ValueError, match="truncated"):
        list_splits("karpathy", path)


@pytest.mark.parametrize("format", ["karpathy", "flickr", "table"])
@pytest.mark.parametrize(
    "content", ["image,caption\na.jpg,A dog\na.jpg,A ca", "A dog", "<html>"]
)
def test_a_file_of_another_format_is_not_called_truncated(
    tmp_path, format, content
):
    path = write(tmp_path / "captions.txt", content)
    message, problems = fails(format, path)
    assert len(problems) == 1 and "truncated" not in message
    assert all(name in message for name in READERS if name != "precomputed")


def test_json_cut_anywhere_is_noticed(karpathy_file):
    text = karpathy_file.read_text()
    for end in range(len(text)):
        karpathy_file.write_text(text[:end])
        with pytest.raises(ValueError, match="truncated|empty file"):
            read_captions("karpathy", karpathy_file, "train")


def test_json_that_is_none(tmp_path):
    path = write(tmp_path / "list.json", "[1")
    assert "expected JSON" in fails("karpathy", path)[0]
    path = write(tmp_path / "deep.json", "[" * 200_000)
    assert "expected JSON" in fails("karpathy", path)[0]
    path = write(tmp_path / "other.json", '{"annotations": []}')
    assert "list 'images'; found ['annotations']" in fails("karpathy", path)[0]


@pytest.mark.parametrize(
    "name, content, format, other",
    [
        (
            "own.csv",
            "image,caption,split\na.jpg,A dog,train\n",
            "coco",
            "table",
        ),
        ("own.csv", "a.jpg,A dog,train\n", "flickr", "table"),
        ("own.jsonl", '{"image": "a", "caption": "b"}\n', "karpathy", "table"),
        ("own.txt", "a.jpg#0\tA dog\n", "karpathy", "flickr"),
        (
            "own.json",
            '{"images": []}',
            "table",
            "karpathy or coco or flickr30k_json",
        ),
    ],
)
def test_a_file_of_another_format_is_told_as_one(
    tmp_path, name, content, format, other
):
    path = write(tmp_path / name, content)
    message, problems = fails(format, path)
    assert f"Set `format` to {other}." in message
    assert "truncated" not in message
    assert len(problems) == 1
    with pytest.raises(ValueError, match="Set `format` to"):
        list_splits(format, path)


def test_a_folder_of_captions_is_told_as_one(tmp_path):
    write(tmp_path / "train_caps.txt", "A dog\n")
    message, _ = fails("karpathy", tmp_path)
    assert "Set `format` to precomputed." in message


def test_json_byte_that_is_no_utf8_names_its_line(tmp_path):
    path = write(tmp_path / "d.json", b'{"images":\n["caf\xe9"]}')
    message, problems = fails("karpathy", path)
    assert problems[0].line == 2 and "0xe9" in message


def test_json_with_a_byte_order_mark(karpathy_file):
    karpathy_file.write_bytes(b"\xef\xbb\xbf" + karpathy_file.read_bytes())
    assert read_captions("karpathy", karpathy_file, "train").num_images == 2


def test_half_a_surrogate_pair_is_no_caption(tmp_path):
    path = karpathy(
        tmp_path / "d.json", karpathy_image("x", "train", "p \ud83d")
    )
    assert "half of a surrogate" in fails("karpathy", path)[0]


# Flickr token file.


@pytest.fixture
def token_file(tmp_path):
    write(tmp_path / "Flickr_8k.trainImages.txt", "b.jpg\na.jpg\n")
    write(tmp_path / "Flickr_8k.DevImages.txt", "c.jpg")
    write(tmp_path / "readme.txt", "no list")
    return write(
        tmp_path / "F.token.txt",
        "a.jpg#0\tA dog .\na.jpg#1\tA cat\r\n"
        "b.jpg#0\tTwo\u2028lines, caf\u00e9\nc.jpg#0\t\n",
    )


def test_flickr_follows_the_order_of_the_split_list(token_file):
    images = read_captions("flickr", token_file, "train")
    assert columns(images) == (
        ("b.jpg", "a.jpg"),
        ("Two\u2028lines, café", "A dog .", "A cat"),
        [0, 1, 1],
    )
    assert list_splits("flickr", token_file) == ("train", "dev")
    assert read_captions("flickr", token_file, "val").captions == ("",)


def test_flickr_lists_by_split_name_and_without_extension(tmp_path):
    path = write(tmp_path / "r.token", "1.jpg#0\tp\n2.jpg#0\tq\n")
    write(tmp_path / "train.txt", "2\n")
    write(tmp_path / "validation.txt", "1\n")
    assert list_splits("flickr", path) == ("train", "validation")
    assert read_captions("flickr", path, "dev").image_ids == ("1.jpg",)


def test_flickr_without_lists_is_one_split(tmp_path):
    path = write(tmp_path / "r.token", "1.jpg#0\tp\n2.jpg#0\tq\n")
    assert list_splits("flickr", path) == ("all",)
    assert read_captions("flickr", path, "all").num_images == 2
    with pytest.raises(ValueError, match="'all'.*=train.*ask for 'all'"):
        read_captions("flickr", path, "train")


def test_flickr_two_lists_for_a_split_are_refused(token_file, tmp_path):
    write(tmp_path / "train.txt", "b\n")
    with pytest.raises(ValueError, match="one list for each split"):
        read_captions("flickr", token_file, "train")


@pytest.mark.parametrize(
    "row, message",
    [
        ("a.jpg A dog\n", "expected '<image>#<number><TAB><caption>'; found"),
        ("a.jpg\tA dog\n", "expected '<image>#<number>"),
        ("a.jpg#1\tA cow\n", "under another number; found 'a.jpg#1'"),
        ("../a.jpg#0\tA dog\n", "leaves that folder"),
        ("a.jpg#2\tA do", "looks truncated"),
        ("a.j", "looks truncated"),
    ],
)
def test_flickr_bad_row_is_named(token_file, row, message):
    token_file.write_text(token_file.read_text() + row)
    error, problems = fails("flickr", token_file)
    assert message in error
    assert [problem.line for problem in problems] == [5]
    images = read_captions("flickr", token_file, "train", [])
    assert images.captions[1:] == ("A dog .", "A cat")


def test_flickr_byte_that_is_no_utf8_names_its_line(token_file):
    content = token_file.read_bytes().replace("é".encode(), b"\xe9")
    token_file.write_bytes(content)
    message, problems = fails("flickr", token_file)
    assert message.startswith(f"{token_file}:3: ") and "0xe9" in message
    assert len(problems) == 1


def test_flickr_listed_image_without_captions_is_named(token_file):
    path = token_file.parent / "Flickr_8k.trainImages.txt"
    write(path, "b.jpg\n\nnone.jpg\nb.jpg\n")
    _, problems = fails("flickr", token_file)
    assert [problem.line for problem in problems] == [3, 4]
    assert "'none.jpg'. It has no images" in problems[0].message
    assert "once, as in line 1; found 'b.jpg'" in problems[1].message
    write(path, "")
    assert "found none" in fails("flickr", token_file)[0]


def test_flickr_ambiguous_stem_is_named(tmp_path):
    path = write(tmp_path / "r.token", "1.jpg#0\tp\n1.png#0\tq\n")
    write(tmp_path / "train.txt", "1\n")
    assert "It has 2 images" in fails("flickr", path)[0]


# MSCOCO.


def coco(path, images, annotations):
    content = {
        "images": [{"id": k, "file_name": n} for k, n in images],
        "annotations": [
            {"id": 9, "image_id": k, "caption": c} for k, c in annotations
        ],
    }
    return write(path, json.dumps(content))


def test_coco_joins_by_id(tmp_path):
    coco(
        tmp_path / "captions_val2014.json",
        [(1000092796, "v/1.jpg"), (1000092795, "v/2.jpg"), (7, "v/3.jpg")],
        [(1000092795, "p"), (1000092796, "q\n"), (1000092795, "r")],
    )
    pattern = tmp_path / "captions_{split}2014.json"
    images = read_captions("coco", pattern, "dev")
    assert columns(images) == (
        ("1000092796", "1000092795", "7"),
        ("q", "p", "r"),
        [0, 1, 1],
    )
    assert images.file_names == ("v/1.jpg", "v/2.jpg", "v/3.jpg")
    assert list_splits("coco", pattern) == ("val",)
    with pytest.raises(ValueError, match="has: 'val'.*=train"):
        read_captions("coco", pattern, "train")


def test_coco_file_without_pattern_is_one_split(tmp_path):
    path = coco(tmp_path / "c.json", [(1, "1.jpg")], [(1, "p")])
    assert list_splits("coco", path) == ("all",)
    assert read_captions("coco", path, "all").captions == ("p",)
    with pytest.raises(ValueError, match="a split, {split} in its path"):
        read_captions("coco", path, "train")


@pytest.mark.parametrize(
    "images, annotations, message",
    [
        ([(1, "1.jpg"), (1, "2.jpg")], [], "images[1]: expected an 'id' that"),
        ([(1, "1.jpg"), (2, "../2")], [], "images[1]: expected an image"),
        ([(1, "1.jpg"), (2.5, "2")], [], "images[1]: expected a whole"),
        ([(1, "1.jpg"), (True, "2")], [], "images[1]: expected a whole"),
        ([(1, "1.jpg")], [(3, "p")], "annotations[0]: expected the 'id'"),
        ([(1, "1.jpg")], [(1, None)], "annotations[0]: expected a caption"),
    ],
)
def test_coco_bad_entry_is_named(tmp_path, images, annotations, message):
    path = coco(tmp_path / "c.json", images, annotations)
    error, problems = fails("coco", path, "all")
    assert f"{path}: {message}" in error
    assert len(problems) == 1
    good = read_captions("coco", path, "all", [])
    assert (good.image_ids, good.captions) == (("1",), ())


# Precomputed features.


def precomputed(folder, rows, captions, ids=None, split="train"):
    write(folder / f"{split}_caps.txt", "".join(c + "\n" for c in captions))
    np.save(folder / f"{split}_ims.npy", np.asarray(rows, np.float32))
    if ids is not None:
        write(folder / f"{split}_ids.txt", "".join(i + "\n" for i in ids))
    return folder


def test_precomputed_reads_blocks_of_captions(tmp_path):
    # 6 captions of 2 images: 3 each, whatever the number.
    precomputed(tmp_path, [[1], [2]], "pqrstu", ["b.jpg", "a.jpg"])
    images = read_captions("precomputed", tmp_path, "train")
    assert columns(images) == (
        ("b.jpg", "a.jpg"),
        tuple("pqrstu"),
        [0, 0, 0, 1, 1, 1],
    )
    assert list_splits("precomputed", tmp_path) == ("train",)


def test_precomputed_without_ids_counts_rows(tmp_path):
    precomputed(tmp_path, [[1], [1]], "pqrs", split="dev")
    images = read_captions("precomputed", tmp_path, "val")
    assert columns(images) == (("0", "1"), tuple("pqrs"), [0, 0, 1, 1])


def test_precomputed_rows_repeated_for_each_caption(tmp_path):
    # Runs of equal rows: rows 0-2, 3 and 4-5.
    rows = [[1, 2], [1, 2], [1, 2], [3, 4], [1, 2], [1, 2]]
    precomputed(tmp_path, rows, "pqrstu")
    images = read_captions("precomputed", tmp_path, "train")
    assert columns(images) == (
        ("0", "3", "4"),
        tuple("pqrstu"),
        [0, 0, 0, 1, 2, 2],
    )


def test_precomputed_repeated_ids_are_one_image(tmp_path):
    # Captions p and r belong to image x; y looks alike and stays apart.
    precomputed(tmp_path, [[1], [1], [1]], "pqr", ["x", "y", "x"])
    images = read_captions("precomputed", tmp_path, "train")
    assert columns(images) == (("x", "y"), ("p", "r", "q"), [0, 0, 1])


def test_precomputed_one_caption_for_each_image(tmp_path):
    precomputed(tmp_path, [[1], [2]], "pq", ["x", "y"])
    images = read_captions("precomputed", tmp_path, "train")
    assert images.caption_to_image.tolist() == [0, 1]


def test_precomputed_caption_count_must_fit(tmp_path):
    precomputed(tmp_path, [[1], [2]], "pqrst", ["x", "y"])
    message, problems = fails("precomputed", tmp_path)
    assert "for each of the 2 rows" in message
    assert "found 5 captions" in message
    assert (problems[0].path, problems[0].line) == (
        str(tmp_path / "train_caps.txt"),
        5,
    )
    write(tmp_path / "train_caps.txt", "p\nq\nr")
    assert "looks cut off" in fails("precomputed", tmp_path)[0]


def test_precomputed_bad_features_are_named(tmp_path):
    precomputed(tmp_path, [[1], [2]], "pq", ["x"])
    message, _ = fails("precomputed", tmp_path)
    assert "train_ids.txt:1: expected one id for each of the 2" in message


def test_precomputed_other_folder(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="_caps.txt"):
            read_captions("precomputed", path, "train")
        with pytest.raises(FileNotFoundError, match="_caps.txt"):
            list_splits("precomputed", path)


# Tables.


def test_table_csv_joins_rows_of_an_image(tmp_path):
    path = write(
        tmp_path / "t.csv",
        "\ufeffImage, caption ,split,note\n"
        'a.jpg,"A ""big"", dog",train,1\n'
        "b.jpg,A cow,test,2\n"
        "\n"
        'a.jpg,"Two\r\nlines",train,3\r\n',
    )
    images = read_captions("table", path, "train")
    assert columns(images) == (
        ("a.jpg",),
        ('A "big", dog', "Two\nlines"),
        [0, 0],
    )
    assert list_splits("table", path) == ("train", "test")


def test_table_written_by_the_csv_module_comes_back(tmp_path):
    texts = ['say "x"', "a,b", "c\td", " é ", "", "'"]
    for name, dialect in [("t.csv", "excel"), ("t.tsv", "excel-tab")]:
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as out:
            rows = [["a.jpg", text] for text in texts]
            csv.writer(out, dialect).writerows([["image", "caption"], *rows])
        images = read_captions("table", tmp_path / name, "all")
        assert images.captions == tuple(text.strip() for text in texts)


def test_table_jsonl(tmp_path):
    rows = [
        {"image": "a.jpg", "caption": "p", "split": "train"},
        {"image": "a.jpg", "caption": "q", "split": "train", "more": 1},
        {"image": "b.jpg", "caption": "", "split": "dev"},
    ]
    path = write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)))
    images = read_captions("table", path, "train")
    assert columns(images) == (("a.jpg",), ("p", "q"), [0, 0])
    assert read_captions("table", path, "val").captions == ("",)


@pytest.mark.parametrize(
    "splits, line, message",
    [
        ((None, "test"), 2, "'split' in every row or in none; found 'test'"),
        (("test", None), 2, "the name of a split; found ''"),
    ],
)
def test_table_jsonl_with_a_split_in_some_rows(tmp_path, splits, line, message):
    rows = [
        {"image": f"{i}.jpg", "caption": "p"} | ({"split": one} if one else {})
        for i, one in enumerate(splits)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = write(tmp_path / "t.jsonl", text)
    with pytest.raises(ValueError) as caught:
        read_captions("table", path, "all")
    assert f"t.jsonl:{line}: expected {message}" in str(caught.value)


def test_table_jsonl_with_a_key_twice(tmp_path):
    path = write(
        tmp_path / "t.jsonl", '{"image": "a", "caption": "p", "caption": "q"}\n'
    )
    with pytest.raises(ValueError, match="1: .*found 'caption' twice"):
        read_captions("table", path, "all")


@pytest.mark.parametrize(
    "name, mark, encoding",
    [
        ("own.csv", ";", "utf-8"),
        ("own.csv", "\t", "utf-8"),
        ("own.csv", ";", "utf-16"),
        ("own.tsv", "\t", "utf-16"),
    ],
)
def test_table_as_a_spreadsheet_saves_it(tmp_path, name, mark, encoding):
    rows = ['"Image"', '"Caption"'], ["é.jpg", '"Two; dogs,\ta 犬"']
    text = "\r\n".join(map(mark.join, rows)) + "\r\n"
    (tmp_path / name).write_bytes(text.encode(encoding))
    images = read_captions("table", tmp_path / name, "all")
    assert images.image_ids == ("é.jpg",)
    assert images.captions == ("Two; dogs,\ta 犬",)


def test_half_a_letter_of_utf_16_is_told(tmp_path):
    content = "image,caption\na.jpg,a dog\n".encode("utf-16")
    (tmp_path / "own.csv").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="expected UTF-8 text; found the byte"):
        read_captions("table", tmp_path / "own.csv", "all")


def test_table_that_calls_one_file_by_two_names(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("image,caption\n./a.jpg,p\nb.jpg,q\na.jpg,r\n")
    error, _ = fails("table", path, "all")
    assert "own.csv:4: expected './a.jpg', as before; found 'a.jpg'" in error
    assert read_captions("table", path, "all", []).captions == ("p", "q")


def test_table_without_split_column(tmp_path):
    path = write(tmp_path / "train.csv", "image,caption\na.jpg,p\n")
    assert list_splits("table", path) == ("all",)
    with pytest.raises(ValueError, match="has: 'all'.*ask for 'all'"):
        read_captions("table", path, "train")
    images = read_captions("table", tmp_path / "{split}.csv", "train")
    assert images.captions == ("p",)


def test_table_image_in_two_splits_has_its_own_captions_in_each(tmp_path):
    path = write(
        tmp_path / "t.csv", "image,caption,split\na,p,train\na,q,test\n"
    )
    assert read_captions("table", path, "train").captions == ("p",)
    assert read_captions("table", path, "test").captions == ("q",)


@pytest.mark.parametrize(
    "row, message",
    [
        ("a.jpg,p\n", "3: expected 3 columns (image, caption, split); found"),
        ("a.jpg,p,q,train\n", "['a.jpg', 'p', 'q', 'train']. It has 4. Quote"),
        ("a.jpg,p, \n", "3: expected the name of a split"),
        ("../a.jpg,p,train\n", "leaves that folder"),
        (",p,train\n", "is empty"),
        ('"a.jpg,p,train\n', "is never closed"),
        ('"a"b.jpg,p,train\n', "expected a row; found"),
    ],
)
def test_table_bad_csv_row_is_named(tmp_path, row, message):
    path = write(
        tmp_path / "t.csv", "image,caption,split\nok.jpg,p,train\n" + row
    )
    error, problems = fails("table", path)
    assert f"{path}:3: " in error and message in error
    assert len(problems) == 1
    assert read_captions("table", path, "train", []).captions == ("p",)


@pytest.mark.parametrize(
    "row, message",
    [
        ('{"image": "a.jpg", "capt', "looks truncated"),
        ('{"image": "a.jpg"}\n', "'image' and 'caption'"),
        ('["a.jpg", "p"]\n', "'image' and 'caption'"),
        ('{"image": 5, "caption": "p"}\n', "is not a string"),
        ('{"image": "a.jpg", "caption": null}\n', "expected a caption"),
    ],
)
def test_table_bad_jsonl_row_is_named(tmp_path, row, message):
    good = '{"image": "ok.jpg", "caption": "p"}\n'
    path = write(tmp_path / "t.jsonl", good + row)
    error, problems = fails("table", path, "all")
    assert f"{path}:2: " in error and message in error
    assert len(problems) == 1
    assert read_captions("table", path, "all", []).captions == ("p",)


@pytest.mark.parametrize(
    "text, message",
    [
        ("image,caption,caption\na.jpg,p,q\n", "one column caption; found"),
        ("image,Image,caption\na.jpg,b.jpg,p\n", "one column image; found"),
        ("image,caption\ra.jpg,p\r", "a carriage return that no newline"),
    ],
)
def test_table_whose_header_tells_no_columns_is_refused(
    tmp_path, text, message
):
    path = write(tmp_path / "t.csv", text)
    error, _ = fails("table", path, "all")
    assert f"{path}:1: " in error and message in error
    with pytest.raises(ValueError, match=message):
        list_splits("table", path)


def test_splits_by_several_names_of_dev_are_their_own(tmp_path):
    text = "image,caption,split\na.jpg,p,val\nb.jpg,q,dev\n"
    path = write(tmp_path / "t.csv", text)
    assert list_splits("table", path) == ("val", "dev")
    assert read_captions("table", path, "val").captions == ("p",)
    assert read_captions("table", path, "dev").captions == ("q",)
    assert read_captions("table", path, "validation").captions == ("p",)


def test_table_columns_that_are_not_read_may_have_one_name(tmp_path):
    path = write(tmp_path / "t.csv", "image,caption,,\na.jpg,p,,\n")
    assert read_captions("table", path, "all").captions == ("p",)


def test_table_header_is_required(tmp_path):
    path = write(tmp_path / "t.csv", "a.jpg,A dog\nb.jpg,A cat\n")
    problems = []
    read_captions("table", path, "all", problems)
    assert problems[0].line == 1
    assert "found ['a.jpg', 'A dog']" in problems[0].message


def test_table_that_may_be_truncated_warns(tmp_path):
    path = write(tmp_path / "t.csv", "image,caption\na.jpg,p\nb.jpg,A do")
    with pytest.warns(UserWarning, match=r"t.csv:3: .*may be truncated"):
        images = read_captions("table", path, "all")
    assert images.captions == ("p", "A do")
    problems = []
    read_captions("table", path, "all", problems)
    assert [problem.line for problem in problems] == [3]


def test_table_of_another_kind(tmp_path):
    path = write(tmp_path / "t.xlsx", "x")
    with pytest.raises(ValueError, match=".csv, .tsv, .jsonl"):
        read_captions("table", path, "all")
    path = write(tmp_path / "t.csv", "")
    assert "found none" in fails("table", path, "all")[0]


# Paths.


def test_pattern_may_name_the_split_twice(tmp_path):
    for split in ("train", "test"):
        folder = tmp_path / "[odd] name" / split
        write(folder / f"{split}.csv", f"image,caption\n{split}.jpg,p\n")
    write(tmp_path / "[odd] name" / "dev" / "test.csv", "")
    pattern = tmp_path / "[odd] name" / "{split}" / "{split}.csv"
    assert list_splits("table", pattern) == ("train", "test")
    images = read_captions("table", pattern, "train+test")
    assert images.image_ids == ("train.jpg", "test.jpg")


def test_missing_file_names_what_lies_beside_it(tmp_path):
    write(tmp_path / "there.json", "{}")
    for call in (
        lambda: read_captions("karpathy", tmp_path / "d.json", "train"),
        lambda: list_splits("flickr", tmp_path / "d.json"),
    ):
        with pytest.raises(FileNotFoundError, match="holds there.json"):
            call()
    with pytest.raises(FileNotFoundError, match="fits none"):
        list_splits("coco", tmp_path / "{split}.xml")
    with pytest.raises(IsADirectoryError, match="the folder"):
        read_captions("karpathy", tmp_path, "train")


def test_problem_reads_like_a_compiler_message():
    assert str(Problem("a.txt", 3, "bad.")) == "a.txt:3: bad."
    assert str(Problem("a.npy", None, "bad.")) == "a.npy: bad."


# Real data.


@pytest.mark.real_data
@pytest.mark.parametrize(
    "split, size", [("train", 6000), ("dev", 1000), ("test", 1000)]
)
def test_flickr8k_is_the_same_in_three_formats(data_root, split, size):
    folder = data_root / "flickr8k"
    karpathy, flickr, vse = (
        read_captions(format, folder / name, split)
        for format, name in [
            ("karpathy", "dataset_flickr8k.json"),
            ("flickr", "Flickr8k.token.txt"),
            ("precomputed", "precomp_squeezenet"),
        ]
    )
    assert karpathy.num_images == size
    assert karpathy.captions_per_image.tolist() == [5] * size
    assert columns(karpathy) == columns(flickr) == columns(vse)


@pytest.mark.real_data
def test_flickr30k_json(data_root):
    pattern = data_root / "flickr30k" / "{split}.json"
    assert list_splits("flickr30k_json", pattern) == ("validation", "test")
    images = read_captions("flickr30k_json", pattern, "test")
    assert images.image_ids[0] == "1016887272.jpg"
    assert (images.num_images, images.num_captions) == (1000, 5000)
    assert images.captions[4] == "A collage of one person climbing a cliff ."


def test_id_that_stands_twice_in_a_precomputed_split_is_named(tmp_path):
    np.save(tmp_path / "dev_ims.npy", np.eye(3)[[0, 1, 0]])
    (tmp_path / "dev_ids.txt").write_text("a\nb\na\n")
    (tmp_path / "dev_caps.txt").write_text("x\n" * 6)
    with pytest.raises(ValueError, match="dev_ids.txt: .* once.*found 'a'"):
        read_captions("precomputed", tmp_path, "dev")
