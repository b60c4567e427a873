"""Tests of captions in WebDataset shards."""

import json

import pytest

from tbnets.data import archives
from tbnets.data.captions import CaptionSource, read_captions
from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.errors import InputError, MissingFileError
from tests.archives import write_shards, write_tar
from tests.photo_files import encode

PHOTO = encode()


def samples_of(count, **files):
    """Returns `count` samples with a photo and other files."""
    return [
        {f"{row}.jpg": PHOTO}
        | {f"{row}.{kind}": text for kind, text in files.items()}
        for row in range(count)
    ]


def read(path, split="all", problems=None):
    return read_captions(path, split, problems)


def test_captions_are_read_from_each_kind_of_file(tmp_path):
    shard = write_tar(
        tmp_path / "shard.tar",
        {
            "a.jpg": PHOTO,
            "a.txt": "A dog.\n\n Two cats. \n",
            "b/c.PNG": PHOTO,
            "b/c.json": json.dumps({"url": "x", "Caption": "A bird."}),
            "d.json": json.dumps({"captions": ["One.", "Two."], "text": "No"}),
            "d.webp": PHOTO,
            "e.jpg": PHOTO,
            "e.cls": "sheep\n",
            "f.jpg": PHOTO,
            "f.json": '{"caption": "no"}',
            "f.txt": "yes",
            "g.jpg": PHOTO,
            "g.json": '{"caption_0": "First.", "caption_1": "Second."}',
        },
    )
    images = read(shard)
    captions = [
        [images.captions[row] for row in rows] for rows in images.caption_rows()
    ]
    assert dict(zip(images.image_ids, captions)) == {
        "a.jpg": ["A dog.", "Two cats."],
        "b/c.PNG": ["A bird."],
        "d.webp": ["One.", "Two."],
        "e.jpg": ["sheep"],
        "f.jpg": ["yes"],
        "g.jpg": ["First.", "Second."],
    }
    assert images.names == images.image_ids


def test_numbers_of_classes_are_lines_of_a_file(tmp_path):
    samples = [{f"{row}.jpg": PHOTO, f"{row}.cls": f"{row}"} for row in (0, 1)]
    write_shards(tmp_path, "{}.tar", samples, 2)
    with pytest.raises(InputError, match=r"0\.cls: .*classes\.txt"):
        read(tmp_path)
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    assert read(tmp_path).captions == ("dog", "cat")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-0.tar", "val/0.tar", "x/testing.tar"], "train val test"),
        (["coco-train2017-00.tar", "coco-val2017-00.tar"], "train val"),
        (["train-0.tar", "train-1.tar"], "all"),
        (["train-0.tar", "contest-1.tar"], "all"),
        (["dev.tar"], "dev"),
    ],
)
def test_splits_are_found_in_the_names_of_shards(tmp_path, names, splits):
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        contents = {f"{number}.jpg": PHOTO, f"{number}.txt": "A dog."}
        write_tar(tmp_path / name, contents)
    for path in (tmp_path, tmp_path / "*.tar", tmp_path / "{split}.tar"):
        if path == tmp_path or not any("/" in name for name in names):
            assert CaptionSource(path).splits() == (*splits.split(),)
    if len(names) == 3:
        assert read(tmp_path, "dev").names == ("val/0.tar/1.jpg",)


def test_shards_are_named_by_ranges(tmp_path):
    write_shards(tmp_path, "part-{:03}.tar", samples_of(12, txt="A dog."), 12)
    images = read(tmp_path / "part-{002..010}.tar")
    assert images.image_ids == tuple(f"{i}.jpg" for i in range(2, 11))
    assert images.names[0] == "part-002.tar/2.jpg"
    assert read(tmp_path / "part-*.tar").num_images == 12
    with pytest.raises(MissingFileError, match="part-012.tar"):
        read(tmp_path / "part-{010..012}.tar")


def test_photos_and_captions_without_each_other_are_counted(tmp_path):
    contents = {"a.jpg": PHOTO, "b.jpg": PHOTO, "b.txt": "A.", "c.txt": "B."}
    shard = write_tar(tmp_path / "shard.tar", contents)
    told = "1 photos without a caption and 1 captions without a photo"
    with pytest.warns(UserWarning, match=f"{shard}: {told}"):
        images = read(shard)
    assert images.captions_per_image.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0.txt", b"\xff"),
        ("0.json", b"{"),
        ("0.json", b'{"text": 3}'),
        ("0.cls", b"1" * 5000),
    ],
)
def test_captions_that_are_invalid(tmp_path, name, content):
    shard = write_tar(tmp_path / "shard.tar", {"0.jpg": PHOTO, name: content})
    with pytest.raises(InputError, match=f"shard.tar: {name}: expected"):
        read(shard)
    problems = []
    assert read(shard, problems=problems).captions == ()
    assert [problem.path for problem in problems][0] == str(shard)


def test_two_photos_with_one_key_are_refused(tmp_path):
    shard = write_tar(tmp_path / "c.tar", {"1.0.jpg": PHOTO, "1.1.jpg": PHOTO})
    with pytest.raises(InputError, match="first dot"):
        read(shard)


def test_a_damaged_shard_and_the_good_shards(tmp_path):
    write_shards(tmp_path, "{}.tar", samples_of(2, txt="A dog."), 2)
    (tmp_path / "1.tar").write_bytes((tmp_path / "1.tar").read_bytes()[:700])
    with pytest.raises(InputError, match=r"1\.tar: byte 0: expected"):
        read(tmp_path)
    problems = []
    assert read(tmp_path, problems=problems).image_ids == ("0.jpg",)
    assert [problem.path for problem in problems] == [str(tmp_path / "1.tar")]


def test_photos_of_other_captions_are_found_in_the_shards(tmp_path):
    samples = [{f"{row}.jpg": PHOTO} for row in range(5)]
    write_shards(tmp_path / "shards", "{}.tar", samples, 2)
    rows = "".join(f"{row},A dog.\n" for row in range(5))
    (tmp_path / "captions.csv").write_text(f"image,caption\n{rows}")
    root, shards = str(tmp_path), "shards/{0..1}.tar"
    data = Data(Sources(root, captions="captions.csv", images=shards))
    assert data.sources.photo_folder == tmp_path / "shards"
    for split in ("train", "dev", "test"):
        part = data.split(split)
        assert all(map(archives.is_file, part.photos.paths))
        assert all(name.endswith(".jpg") for name in part.records.names)
