"""Tests of shares that become one store, or one file."""

import os
import shutil

import numpy as np
import pytest

from tbnets.data.store import joining
from tbnets.data.store.joining import join, take_share, tell_file
from tbnets.data.store.writer import FeatureWriter
from tests import refusals
from tests.data.store.test_writer import EXTRACTION, IDS, content_of, extract


def make_share(folder, shard, kind="images", **decides):
    """Makes a share of what `extract` makes, with an encoder beside it."""
    rows, told = take_share(shard, IDS, 2, **decides)
    path = folder / f"s{shard.replace('/', 'of')}"
    extract(path, kind, ids=IDS[rows], **told)
    (path / "encoder.npz").write_bytes(b"the same")
    return path


@pytest.fixture
def two(tmp_path):
    return [make_share(tmp_path, f"{i}/2") for i in (1, 2)]


@pytest.mark.parametrize(
    "of, kind", [(1, "images"), (3, "regions"), (6, "images")]
)
def test_shares_become_the_bytes_of_one_run(tmp_path, kind, of):
    shares = [make_share(tmp_path, f"{i}/{of}", kind) for i in range(of, 0, -1)]
    assert join(shares, tmp_path / "new" / "all") == len(IDS)
    extract(tmp_path / "straight", kind)
    (tmp_path / "straight" / "encoder.npz").write_bytes(b"the same")
    (tmp_path / "new" / "all" / ".hidden").touch()
    (tmp_path / "straight" / ".hidden").touch()
    joined = content_of(tmp_path / "new" / "all")
    assert joined == content_of(tmp_path / "straight")
    assert os.listdir(tmp_path / "new") == ["all"]


def spoil(path, how):
    """Makes of a share what is not the rest of the work."""
    rows = path / "00000.npy"
    if how == "damaged":
        rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    elif how == "lacking":
        (path / "encoder.npz").unlink()
    else:
        shutil.rmtree(path)
    if how == "a file":
        path.write_text("{}")
    elif how == "no share":
        extract(path)
    elif how == "made otherwise":
        make_share(path.parent, "2/2", batch_size=4)
    elif how == "incomplete":
        _, told = take_share("2/2", IDS, 2)
        writer = FeatureWriter(path, EXTRACTION | told, 3)
        writer.add_shard(["6.jpg"], np.ones((1, 3)))


@pytest.mark.parametrize(
    "argument, how",
    [
        (None, "damaged"),
        ("shares", "lacking"),
        ("s2of2", "absent"),
        ("s2of2.share.json", "a file"),
        ("shares", "no share"),
        ("shares", "made otherwise"),
        ("path", "incomplete"),
    ],
)
def test_what_is_not_the_rest_is_refused(two, tmp_path, argument, how):
    spoil(two[1], how)
    with refusals.refused(argument) as error:
        join(two, tmp_path / "all")
    assert two[1].name in str(error.value)
    assert not (tmp_path / "all").exists()


def test_shares_that_are_not_each_once_are_refused(two, tmp_path):
    for shares in ([two[0]], [two[0], two[0]], []):
        with refusals.refused("shares"):
            join(shares, tmp_path / "all")


def test_what_is_there_stays(two, tmp_path, monkeypatch):
    before = content_of(two[0])
    with refusals.refused("output"):
        join(two, two[0])
    assert content_of(two[0]) == before

    def killed(folder, manifest):
        raise KeyboardInterrupt

    monkeypatch.setattr(joining.manifest, "write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        join(two, tmp_path / "all")
    assert sorted(os.listdir(tmp_path)) == ["s1of2", "s2of2"]


def test_files_are_joined_and_checked(tmp_path):
    lines, paths = ["a\n", "b\n", "c\n"], []
    for number in (1, 2):
        rows, told = take_share(f"{number}/2", lines)
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(lines[rows]))
        tell_file(path, {"parser": "mine", **told})
        paths.append(path)
    assert join(paths[::-1], tmp_path / "all.jsonl") == 3
    assert (tmp_path / "all.jsonl").read_text() == "a\nb\nc\n"
    paths[1].write_text("b\nd\n")
    with refusals.at(paths[1]):
        join(paths, tmp_path / "again")
    told = tmp_path / "2.jsonl.share.json"
    told.write_text("[]")
    with refusals.refused("shares"):
        join(paths, tmp_path / "again")
    told.unlink()
    with refusals.refused(told.name):
        join(paths, tmp_path / "again")


# How a work is cut.


@pytest.mark.parametrize("count", [0, 1, 5, 8])
@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shares_follow_each_other_at_multiples_of_the_step(count, step, of):
    keys, ends = [f"{i}.jpg" for i in range(count)], [0]
    for number in range(1, of + 1):
        rows, told = take_share(f"{number}/{of}", keys, step, batch_size=4)
        assert rows.start == ends[-1] and rows.start % step == 0
        ends.append(rows.stop)
        share = told["share"]
        assert (share["number"], share["of"]) == (number, of)
        assert share["items"] == count and share["batch_size"] == 4
    assert ends[-1] >= count and keys[: ends[-1]] == keys
    sizes = [b - a for a, b in zip(ends, ends[1:])]
    assert max(sizes) - min(sizes) <= step


def test_no_share_is_all():
    rows, told = take_share("", ["a", "b"], 1, batch_size=4)
    assert ["a", "b"][rows] == ["a", "b"] and told == {}


def test_other_items_or_another_order_are_another_work():
    def work(*keys):
        return take_share("1/2", keys)[1]["share"]["items_sha256"]

    assert len({work("a", "b"), work("b", "a"), work("a,", "b")}) == 3


@pytest.mark.parametrize(
    "shard", ["0/2", "3/2", "1", "/", "1/0", "-1/2", "a/b"]
)
def test_what_is_no_share_is_told(shard):
    with refusals.refused("shard"):
        take_share(shard, ["a"])
