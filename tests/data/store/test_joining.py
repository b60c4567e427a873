"""Tests of shares that become one store, or one file."""

import os

import numpy as np
import pytest

from tbnets.data.store import joining
from tbnets.data.store.joining import join, take_share, tell_file
from tbnets.data.store.writer import FeatureWriter
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


@pytest.mark.parametrize("kind", ["images", "regions"])
@pytest.mark.parametrize("of", [1, 2, 3, 6])
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


def incomplete(folder):
    _, told = take_share("2/2", IDS, 2)
    writer = FeatureWriter(folder / "young", EXTRACTION | told, 3)
    writer.add_shard(["6.jpg"], np.ones((1, 3)))
    return folder / "young"


def damaged(folder):
    path = make_share(folder / "damaged", "2/2") / "00000.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    return path.parent


def lacking(folder):
    path = make_share(folder / "lacking", "2/2")
    (path / "encoder.npz").unlink()
    return path


def plain(folder):
    extract(folder / "plain")
    return folder / "plain"


def cut(folder):
    path = make_share(folder / "cut", "2/2")
    text = (path / "manifest.json").read_text()
    assert text.count('"id": "5.jpg"') == 1
    (path / "manifest.json").write_text(text.replace("5.jpg", "4.jpg"))
    return path


def other(folder):
    return make_share(folder / "other", "2/2", batch_size=4)


def a_file(folder):
    (folder / "trees.jsonl").write_text("{}")
    return folder / "trees.jsonl"


@pytest.mark.parametrize(
    "second, message",
    [
        (lambda folder: folder / "s1of2", "and .*s1of2, both 1/2. Leave one"),
        (lambda folder: None, "must be all 2 .* 1, without 2/2. .*--shard=2/2"),
        (lambda folder: folder / "absent", "absent, which is not there"),
        (plain, "plain, which tells of no share"),
        (other, "share.batch_size: nothing in .*s1of2, 4 in .*other"),
        (incomplete, "must be a complete feature store.*young"),
        (damaged, "00000.npy: expected the sha256"),
        (lacking, "files.encoder.npz: .* in .*s1of2, nothing in"),
        (cut, "must hold 7 photos or texts, .*: 6 in"),
        (a_file, "trees.jsonl, which is a file beside stores"),
    ],
)
def test_what_is_not_the_rest_is_refused(two, tmp_path, second, message):
    first, path = two[0], second(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        join([first, path] if path else [first], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_what_is_there_stays(two, tmp_path, monkeypatch):
    before = content_of(two[0])
    with pytest.raises(ValueError, match="`output` must be new.*s1of2"):
        join(two, two[0])
    assert content_of(two[0]) == before
    with pytest.raises(ValueError, match="Received: none"):
        join([], tmp_path / "all")

    def killed(folder, manifest):
        raise KeyboardInterrupt

    monkeypatch.setattr(joining.manifest, "write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        join(two, tmp_path / "all")
    assert sorted(os.listdir(tmp_path)) == ["s1of2", "s2of2"]


def test_many_absent_shares_are_told_in_part(tmp_path):
    share = make_share(tmp_path, "1/900")
    with pytest.raises(ValueError, match="2/900, .*, 6/900 and 894 more. Make"):
        join([share], tmp_path / "all")


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
    with pytest.raises(ValueError, match="2.jsonl: expected the sha256 that"):
        join(paths, tmp_path / "again")
    (tmp_path / "2.jsonl.share.json").unlink()
    with pytest.raises(ValueError, match="has no .*2.jsonl.share.json"):
        join(paths, tmp_path / "again")
    (tmp_path / "2.jsonl.share.json").write_text("[]")
    with pytest.raises(ValueError, match="tells of no share"):
        join(paths, tmp_path / "again")
