"""Tests of lists of photos."""

import pytest

from tbnets.data.captions import read_captions
from tbnets.data.photos import listed_rows, read_listed
from tbnets.data.splits import NoSuchSplit


@pytest.mark.parametrize(
    "line", ["x/12_0ab.jpg", "12_0ab.jpg", "12_0ab", "12", " 12.jpg "]
)
def test_a_photo_has_several_names(tmp_path, line):
    path = tmp_path / "list.txt"
    path.write_text(f"99\n\n{line}\n")
    assert listed_rows(["1.jpg", "x/12_0ab.jpg", "12a.jpg"], path).tolist() == [
        1
    ]


def test_a_line_that_is_an_id_names_no_other_photo(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("red/1.jpg\n2\n")
    ids = ["red/1.jpg", "blue/1.jpg", "blue/2.jpg"]
    assert listed_rows(ids, path).tolist() == [0, 2]
    path.write_text("a.b\n")  # What looks like a suffix may be none.
    assert listed_rows(["a.png", "a.b.jpg"], path).tolist() == [1]
    path.write_text("12.jpg\n")
    assert listed_rows(["12.jpg", "12_0ab.jpg"], path).tolist() == [0]


@pytest.mark.parametrize("line", ["1", "green/1.jpg", "1.png"])
def test_a_line_that_may_mean_two_photos_is_refused(tmp_path, line):
    path = tmp_path / "list.txt"
    path.write_text(f"2\n{line}\n")
    with pytest.raises(
        ValueError, match="list.txt:2: .*'red/1.jpg' and 'blue/1_0a.jpg'"
    ):
        listed_rows(["red/1.jpg", "blue/1_0a.jpg", "2.jpg"], path)


def test_a_list_of_other_photos_is_refused(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("12\n123\n1\n")
    ids = ["12x_0ab.jpg", "1234.jpg"]
    with pytest.raises(ValueError, match="list.txt: expected ids of the 2 ph"):
        listed_rows(ids, path)


@pytest.fixture
def captions(tmp_path):
    """Returns a table of four photos in two splits."""
    path = tmp_path / "captions.csv"
    rows = ["a,x,train", "b,y,test", "c,z,train", "d,w,test"]
    path.write_text("\n".join(["image,caption,split", *rows, ""]))
    return path


def test_lists_take_the_place_of_splits(tmp_path, captions):
    (tmp_path / "train.txt").write_text("d\na\n")
    (tmp_path / "validation.txt").write_text("b\nelsewhere\n")
    lists = tmp_path / "{split}.txt"
    train = read_listed("table", captions, lists, "train")
    assert train.image_ids == ("a", "d")
    assert train.captions == ("x", "w")
    assert train.split == "train"
    assert read_listed("table", captions, lists, "dev").image_ids == ("b",)
    with pytest.raises(NoSuchSplit, match="'train', 'validation'"):
        read_listed("table", captions, lists, "test")


def test_lists_that_would_all_be_the_same_are_refused(tmp_path, captions):
    (tmp_path / "all.txt").write_text("a\n")
    with pytest.raises(ValueError, match="must hold {split}"):
        read_listed("table", captions, tmp_path / "all.txt", "train")


@pytest.mark.real_data
def test_photos_of_flickr8k_in_the_splits_of_flickr30k(data_root):
    dataset = data_root / "flickr8k" / "dataset_flickr8k.json"
    images = read_captions("karpathy", dataset, "train+val+test")
    counts = {
        split: len(
            listed_rows(
                images.image_ids, data_root / "flickr30k" / f"{split}.txt"
            )
        )
        for split in ("train", "validation", "test")
    }
    assert counts == {"train": 7471, "validation": 245, "test": 284}
