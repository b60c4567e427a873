"""Tests of captions and photos in parquet files."""

import os
import tempfile

import numpy as np
import pytest

from tbnets.data import archives, images, parquet
from tbnets.data.captions import read_captions
from tbnets.data.open import Data
from tbnets.data.photos import find_photos
from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tests.photo_files import encode

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

PHOTOS = [encode(seed=seed) for seed in range(5)]
NAMES = [f"{row}.jpg" for row in range(5)]


def photos_of(paths=NAMES, contents=PHOTOS):
    """Returns a column of photos as the datasets library writes it."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pairs = zip(contents, paths)
    return pa.array([{"bytes": x, "path": name} for x, name in pairs], kind)


def write(path, rows_at_once=2, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=rows_at_once)
    return path


def read(path, split="all", problems=None):
    return read_captions(path, split, problems)


def captions_of(found):
    rows = zip(found.image_ids, found.caption_rows())
    return {key: [found.captions[row] for row in x] for key, x in rows}


CAPTIONS = {
    "caption": [f"Dog {row}." for row in range(5)],
    "text": [[f"Dog {row}."] for row in range(5)],
    "sentences": pa.array(
        [["A.", "B."], ["C."], [], ["D.", None], ["E."]],
        pa.large_list(pa.large_string()),
    ),
}
EXPECTED = {"sentences": [["A.", "B."], ["C."], [], ["D."], ["E."]]}


@pytest.mark.parametrize("column", CAPTIONS)
def test_photos_and_captions_in_a_file(tmp_path, column):
    path = tmp_path / "data.parquet"
    write(
        path, image=photos_of(), label=[1.5] * 5, **{column: CAPTIONS[column]}
    )
    found = read(path)
    expected = EXPECTED.get(column, [[f"Dog {row}."] for row in range(5)])
    assert captions_of(found) == dict(zip(NAMES, expected))
    assert found.read_as == f"parquet (columns image, {column})"
    for row in (4, 0, 3, 1, 2, 0):
        assert archives.read_bytes(path / found.names[row]) == PHOTOS[row]
        assert images.read_file(str(path / NAMES[row])).numpy() == PHOTOS[row]
    assert images.fault_of(path / "5.jpg") == "does not exist"


def test_names_of_photos(tmp_path):
    texts = CAPTIONS["caption"]
    plain = pa.array(PHOTOS, pa.large_binary())
    columns = {"jpg": plain, "filename": NAMES, "caption": texts}
    path = write(tmp_path / "a.parquet", **columns)
    assert read(path).image_ids == (*NAMES,)
    path = write(tmp_path / "b.parquet", jpg=plain, caption=texts)
    assert read(path).image_ids == (*(f"b-{row}" for row in range(5)),)
    outside = [*NAMES[:4], "../4.jpg"]
    path = write(tmp_path / "c.parquet", x=photos_of(outside), caption=texts)
    assert read(path).image_ids == (*NAMES[:4], "c-4")
    absolute = [f"/home/me/{name}" for name in NAMES]
    path = write(tmp_path / "d.parquet", x=photos_of(absolute), caption=texts)
    assert read(path).image_ids == (*NAMES,)


def test_rows_with_one_name_are_one_image_if_their_photos_are_equal(tmp_path):
    names, contents = ["a.jpg", "a.jpg", "b.jpg"], PHOTOS[:1] * 2 + PHOTOS[1:2]
    texts = ["One.", "Two.", "Three."]
    image = photos_of(names, contents)
    path = write(tmp_path / "a.parquet", image=image, caption=texts)
    expected = {"a.jpg": ["One.", "Two."], "b.jpg": ["Three."]}
    assert captions_of(read(path)) == expected
    image = photos_of(names, PHOTOS[:3])
    path = write(tmp_path / "b.parquet", image=image, caption=texts)
    found = read(path)
    assert found.image_ids == ("b-0", "b-1", "b.jpg")
    assert archives.read_bytes(path / found.names[1]) == PHOTOS[1]


def test_captions_of_photos_in_a_folder(tmp_path):
    for name, content in zip(NAMES, PHOTOS):
        (tmp_path / name).write_bytes(content)
    path = tmp_path / "metadata.parquet"
    write(path, file_name=NAMES, text=CAPTIONS["caption"])
    write(tmp_path / "more.parquet", file_name=NAMES[:1], text=["More."])
    data = Data(Sources(str(tmp_path), captions=".", images="."))
    split = data.split("train")
    assert read(tmp_path).image_ids == (*NAMES,)
    assert captions_of(read(tmp_path))["0.jpg"] == ["Dog 0.", "More."]
    [content, *_] = split.photos.batch(np.arange(1))
    assert content.decode() == str(tmp_path / split.records.names[0])


@pytest.mark.parametrize(
    "columns",
    [
        {"label": list(range(5))},
        {"caption": list(range(5))},
        {"caption": [[["A."]]] * 5},
        {"caption": [{"raw": "A."}] * 5},
    ],
)
def test_columns_that_are_not_captions(tmp_path, columns):
    path = write(tmp_path / "data.parquet", image=photos_of(), **columns)
    with pytest.raises(InputError, match="data.parquet: expected a column"):
        read(path)


def test_names_that_repeat_in_files_begin_with_the_file(tmp_path):
    texts = CAPTIONS["caption"]
    for split, names in (("train", NAMES), ("val", ["0.jpg", *"abcd"])):
        write(tmp_path / f"{split}.parquet", image=photos_of(names), text=texts)
    train, val = (read(tmp_path, split) for split in ("train", "dev"))
    assert train.image_ids == ("train.parquet/0.jpg", *NAMES[1:])
    assert val.image_ids == ("val.parquet/0.jpg", *"abcd")
    assert archives.read_bytes(tmp_path / val.names[0]) == PHOTOS[0]
    ids = [key for key, _ in find_photos(tmp_path)]
    assert ids == [*train.image_ids, *val.image_ids]


STRUCT = pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])
IMAGE = [{"bytes": x, "path": name} for x, name in zip(PHOTOS, NAMES)]
BYTES = pa.array([b"x"] * 5)
TABLES = {
    "md5_first": {"md5": BYTES, "image": PHOTOS},
    "struct_first": {"audio": photos_of(), "image": PHOTOS},
    "large": {"image": pa.array(IMAGE, STRUCT)},
    "view": {"image": pa.array(PHOTOS, pa.binary_view())},
    "dictionary": {"image": pa.array(PHOTOS).dictionary_encode()},
    "one_null": {"image": pa.array([*IMAGE[:4], None])},
    "unknown_name": {"x": PHOTOS},
}


@pytest.mark.parametrize("name", TABLES)
def test_the_column_of_photos_is_found(tmp_path, name):
    texts = pa.array(CAPTIONS["caption"], pa.string_view())
    path = write(tmp_path / "a.parquet", **TABLES[name], text=texts)
    found = read(path)
    has_names = name in ("large", "one_null")
    ids = NAMES if has_names else [f"a-{row}" for row in range(5)]
    assert found.image_ids[:4] == (*ids[:4],)
    assert found.captions == (*CAPTIONS["caption"],)
    contents = [archives.read_bytes(path / x) for x in found.names]
    assert contents[:4] == PHOTOS[:4]
    assert contents[4] == (b"" if name == "one_null" else PHOTOS[4])


def test_several_columns_that_may_hold_photos_are_refused(tmp_path):
    texts = CAPTIONS["caption"]
    path = write(tmp_path / "a.parquet", x=PHOTOS, y=PHOTOS, text=texts)
    with pytest.raises(InputError, match=r"a\.parquet: .*x, y"):
        read(path)


MEGABYTE = 1 << 20


def repeated(value, count):
    indices = pa.array([0] * count, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


@pytest.fixture
def copies(monkeypatch):
    """The temporary file of a process that has copied nothing yet."""
    with tempfile.TemporaryFile(buffering=0) as file:
        monkeypatch.setattr(parquet, "_temporary_file", lambda process: file)
        yield file


def test_one_photo_takes_the_space_of_one_photo(tmp_path, copies):
    path, photo = tmp_path / "bomb.parquet", bytes(MEGABYTE)
    image = pa.StructArray.from_arrays(
        [repeated(photo, 100), pa.array([f"{n}.jpg" for n in range(100)])],
        ["bytes", "path"],
    )
    texts = repeated("a" * 60_000, 100)
    for number, bomb in enumerate([image, repeated(photo, 100)], 1):
        write(path, 100, image=bomb, text=texts)
        assert path.stat().st_size < MEGABYTE
        before = pa.total_allocated_bytes()
        found = read(path)
        for row in (7, 3, 99, 8, 2):
            assert archives.read_bytes(path / found.names[row]) == photo
        assert os.fstat(copies.fileno()).st_size == number * MEGABYTE
        assert pa.total_allocated_bytes() < before + 10 * MEGABYTE


@pytest.mark.parametrize(
    "columns",
    [
        {"image": [bytes(MEGABYTE) + b"%d" % n for n in range(70)]},
        {"image": PHOTOS * 30_000},
        {"image": PHOTOS[:1] * 70, "text": ["a" * MEGABYTE] * 70},
        {"image": [None] * 140_000},
        {"image": PHOTOS[:1] * 1200, "text": [["a" * 60_000]] * 1200},
    ],
    ids="photos rows texts nulls lists".split(),
)
def test_files_that_decompress_to_more_than_they_may_are_refused(
    tmp_path, columns
):
    path = tmp_path / "bomb.parquet"
    columns.setdefault("text", ["A dog."] * len(columns["image"]))
    is_list = isinstance(columns["text"][0], list)
    options = {"compression": "zstd", "use_dictionary": is_list or ["none"]}
    pq.write_table(pa.table(columns), path, **options)
    with pytest.raises(InputError, match=r"bomb\.parquet: .*at most"):
        read(path)


def test_a_forked_process_reads_the_copies_of_its_parent(tmp_path, monkeypatch):
    path = write(tmp_path / "p.parquet", image=photos_of(), caption=NAMES)
    for process, rows in ((-1, (1, 1, 1, 0)), (-2, (3, 3, 3, 2, 1, 0))):
        monkeypatch.setattr(parquet.os, "getpid", lambda number=process: number)
        for row in rows:
            assert archives.read_bytes(path / NAMES[row]) == PHOTOS[row]
    sizes = [
        os.fstat(parquet._temporary_file(process).fileno()).st_size
        for process in (-1, -2)
    ]
    assert sizes == [len(PHOTOS[0] + PHOTOS[1]), len(PHOTOS[2] + PHOTOS[3])]
