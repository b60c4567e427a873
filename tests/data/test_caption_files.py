"""Tests of tables and JSON files with captions, read without a flag."""

import csv
import json
import pathlib

import numpy as np
import pytest

from tbnets.data.captions import CaptionSource, read_captions, summary
from tbnets.data.layouts import Columns
from tests import photo_files, refusals

DOG, RUN = "A dog, wet and happy.", "It runs\u2028to the caf\u00e9."
CAT, NAP = "A cat sleeps in the sun.", 'Two "cats" on a wall.'
A, B = "a.jpg", "b.jpg"
# The images of each split, with their captions.
ALL = {"all": {A: [DOG, RUN], B: [CAT, NAP]}}
ONE_EACH = {"all": {A: [DOG], B: [CAT]}}
SPLIT = {"train": {A: [DOG, RUN]}, "val": {B: [CAT, NAP]}}
PAIRS = [(A, DOG), (A, RUN), (B, CAT), (B, NAP)]


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


def json_lines(*rows):
    return lines(*map(json.dumps, rows))


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def table(row, *head):
    """Returns lines with a name `n` and a text `t`, quoted as `q`."""
    rows = [row.format(n=n, t=t, q=quoted(t)) for n, t in PAIRS]
    return lines(*head, *rows)


def records(image, caption, dump=json.dumps, **more):
    """Returns objects with a name and a text, by these keys."""
    return dump([{image: n, caption: t, **more} for n, t in PAIRS])


CONTENTS = {
    # The last column has captions with commas.
    "unquoted.txt": table("{n},{t}", "image,caption"),
    # In the first kilobytes are no images.
    "coco.json": json.dumps(
        {
            "info": {"about": "x y " * 20_000},
            "images": [{"id": 7, "file_name": A}, {"id": 9, "file_name": B}],
            "annotations": [
                {"image_id": 9 if name == B else 7, "caption": text}
                for name, text in PAIRS
            ],
        }
    ),
    # Mappings; a list for each split; what pandas writes.
    "single.json": json.dumps({A: DOG, B: CAT}),
    "splits.json": json.dumps(SPLIT),
    "facts.json": json.dumps(
        {n: {"w": 1, "text": t} for n, t in ALL["all"].items()}
    ),
    "columns.json": json.dumps(
        {"path": {"0": A, "1": B}, "title": {"0": DOG, "1": CAT}}
    ),
    # Tables of spreadsheets.
    "semicolons.dat": table("valid;{n};{t}", "Subset;Photo;Alt text"),
    "several.csv": lines(
        "img_id,image name,caption_0,caption_1",
        f"1,{A},{quoted(DOG)},{RUN}",
        f"2,{B},{CAT},{quoted(NAP)}",
    ),
    "python.csv": lines(
        "url,comments",
        f"https://x.org/d/{A}?s=1,{quoted(repr([DOG, RUN]))}",
        f"https://x.org/d/{B},{quoted(repr([CAT, NAP]))}",
    ),
    # Their photos are in the folder --images.
    "no_header.csv": table("{n},{q}"),
    "no_header.tsv": table("{n[0]}\t{t}"),
    "other_names.csv": lines(
        "Nr,Bild,Beschreibung", f"1,{A},{quoted(DOG)}", f"2,{B},{CAT}"
    ),
    "other_keys.json": records("bild", "worte", n=3),
    "ids.json": json.dumps({"a": [DOG, RUN], "b": [CAT, NAP]}),
}
OTHER_IMAGES = {
    "splits.json": SPLIT,
    **dict.fromkeys(["single.json", "columns.json"], ONE_EACH),
    "other_names.csv": ONE_EACH,
    "semicolons.dat": {"valid": ALL["all"]},
}
FILES = {
    name: (CONTENTS[name], OTHER_IMAGES.get(name, ALL)) for name in CONTENTS
}
"""Name -> (content, captions of each image in each split)."""


def images_of(images):
    """Returns the captions of each photo, by the name of its file."""
    return {
        pathlib.PurePath(images.file_name(row)).name: [
            images.captions[place] for place in rows
        ]
        for row, rows in enumerate(images.caption_rows())
    }


@pytest.fixture
def photos(tmp_path):
    """A folder with the photos `a.jpg` and `b.jpg`."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in (A, B):
        (folder / name).touch()
    return folder


@pytest.mark.filterwarnings("ignore:.*repaired")
@pytest.mark.parametrize("name", FILES)
def test_a_table_is_read_without_a_flag(tmp_path, photos, name):
    content, expected = FILES[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    source = CaptionSource(path, images=photos)
    assert source.splits() == tuple(expected)
    for split, images in expected.items():
        assert images_of(source.read(split)) == images


@pytest.mark.parametrize(
    "content",
    [
        # One value is not a photo; two columns of photos; two of texts.
        f"bild,worte\n{A},p q\nc.jpg,p q\n",
        f"bild,foto,worte\n{A},{A},p q\n{B},{B},p q\n",
        f"bild,worte,titel\n{A},p q,r\n{B},p q,r\n",
        f"{A},p q,r\n{B},p q,r\n",
    ],
)
def test_a_table_with_unclear_columns_is_refused(tmp_path, photos, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with refusals.at(path) as error:
        CaptionSource(path, images=photos).read("all")
    assert "--image_column" in str(error.value)


@pytest.mark.parametrize(
    "key, ids, identities",
    [
        ("id", [1, 2, 1], ("1", "2", "1")),
        # Integers that are one number in float32.
        ("pid", [2**53 + 1, 2**53, 2**53], (str(2**53 + 1), *[str(2**53)] * 2)),
        ("person_id", "abb", ("a", "b", "b")),
        ("identity", [1, 1, 1], ("1", "1", "1")),
        ("imgid", [1, 2, 1], ()),
    ],
)
def test_photos_with_one_id_of_a_person_have_one_identity(
    tmp_path, key, ids, identities
):
    path = tmp_path / "people.json"
    rows = [
        {"file_path": f"{row}.jpg", "captions": [DOG, RUN], key: value}
        for row, value in enumerate(ids)
    ]
    path.write_text(json.dumps(rows))
    images = read_captions(path, "all")
    assert images.identities == identities
    ending = f", {len({*identities})} identities" if identities else "captions"
    assert summary([images]).endswith(ending)
    # `id` is a person only beside the other keys of the public data sets.
    path.write_text(json.dumps([{"image": A, "caption": DOG, "id": 1}]))
    assert read_captions(path, "all").identities == ()


@pytest.mark.parametrize("second", [None, 1.5, "", 2])
def test_a_photo_has_one_identity(tmp_path, second):
    path = tmp_path / "people.json"
    row = {"image": A, "caption": DOG}
    path.write_text(json.dumps([row | {"pid": 1}, row | {"pid": second}]))
    with refusals.at(path) as error:
        read_captions(path, "all")
    assert "[1]: expected" in str(error.value)


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.csv", lines("a,b,c,d", f"p,{A},{RUN},{CAT}", f"q,{B},x y,x y")),
        ("t.jsonl", json_lines({"a": "p", "b": A, "c": RUN, "d": CAT})),
        ("t.json", json.dumps([{"a": "p", "b": A, "c": RUN, "d": CAT}])),
    ],
)
def test_flags_select_columns_of_any_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with refusals.at(path) as error:
        read_captions(path, "all")
    assert "caption_column=" in str(error.value)
    columns = {"image_column": "b", "split_column": "a"}
    for chosen, texts in (["c"], (RUN,)), (["d", "c"], (CAT, RUN)):
        columns["caption_column"] = chosen
        names = Columns("b", tuple(chosen), "a")
        assert CaptionSource(path, names).splits()[0] == "p"
        images = read_captions(path, "p", **columns)
        assert (images.image_ids, images.captions) == ((A,), texts)
    with refusals.at(path) as error:
        read_captions(path, "p", **(columns | {"image_column": "e"}))
    assert "named e" in str(error.value)


def test_a_quoted_caption_between_tabs_does_not_hide_other_rows(tmp_path):
    texts = [
        '"Dogs run"',
        'A 5" dog',
        '"Cats" nap',
        'so "they" say',
        '"""Go"""',
    ]
    rows = [f"{n}.jpg\t{text}" for n, text in enumerate(texts)]
    path = tmp_path / "t.tsv"
    path.write_text(lines("image\tcaption", *rows))
    texts[0], texts[-1] = "Dogs run", '"Go"'
    assert read_captions(path, "all").captions == (*texts,)


@pytest.mark.parametrize("mark", ["\t", "|"])
def test_tables_without_quoting_keep_their_quotes(tmp_path, mark):
    path, text = tmp_path / "t.txt", '"Cats" nap on a wall.'
    path.write_text(lines(f"image{mark}caption", f"{A}{mark}{text}"))
    assert read_captions(path, "all").captions == (text,)
    path.write_text(lines("image\tcaption", f'{A}\t"{DOG}"'))
    assert read_captions(path, "all").captions == (DOG,)


def test_a_cell_may_have_a_list_as_numpy_prints_it(tmp_path):
    path, texts = tmp_path / "t.csv", ["It's a dog.", 'A "cat", asleep.']
    rows = [["image", "captions"], [A, str(np.array(texts, object))]]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert "' " in rows[1][1] or '" ' in rows[1][1]  # Without a comma.
    assert read_captions(path, "all").captions == (*texts,)


OTHERS = {
    "photo.jpg": photo_files.encode(),
    "archive.zip": b"PK\x03\x04\x14\0\0\0\x08\0captions.csv" + bytes(99),
    "page.html": b"<!DOCTYPE html>\n<html><p>A dog, a cat</p>\n</html>\n",
    "people.csv": b"id,name,email\n1,John Smith,j@x.com\n2,Jo Po,p@x.com\n",
    "instances.json": b'{"images": [{"id": 1, "file_name": "a.jpg"}], '
    b'"annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]}',
    "words.txt": "A dog runs.\nA cat sleeps.\n".encode("utf-16"),
    # The line of the error follows the name.
    "old.csv:1": b"image,caption\ra.jpg,p\r",
    "cut.json:3": b'{"images":\n\n [{"filename"',
    "latin.json:2": b'{"images":\n[{"caf\xe9"}]}',
    "deep.json": b"[" * 200_000,
    "splits.json": b'{"train": {}, "val": []}',
    "twice.csv": b"image,Image,caption\na.jpg,b.jpg,p\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_without_captions_is_refused(tmp_path, name):
    name, _, line = name.partition(":")
    path = tmp_path / name
    path.write_bytes(OTHERS[f"{name}:{line}" if line else name])
    source = CaptionSource(path)
    for read in (source.splits, lambda: source.read("train")):
        with refusals.at(path, int(line) if line else None) as error:
            read()
        assert name != "archive.zip" or "Unpack" in str(error.value)
