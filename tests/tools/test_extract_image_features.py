"""Tests of the extraction's command line."""

import numpy as np
import pytest

from tbnets.data.store.joining import take_share
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.tasks.recipes import image_features
from tests import verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known(module_eagerly):
    """Which network it is does not matter to most of these tests."""
    with tiny_cnn.known():
        yield


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for i, name in enumerate(("a.jpg", "b.png", "more/c.jpg")):
        format = "PNG" if name.endswith("png") else "JPEG"
        (tmp_path / "photos" / name).write_bytes(photo(i, format=format))
    (tmp_path / "captions.csv").write_text(
        "image,caption,split\na.jpg,red,train\nb.png,blue,train\n"
        "more/c.jpg,green,test\n"
    )
    return tmp_path


def run(folder, *flags, code=0):
    """Returns what is printed, errors too."""
    done = verbs.run(
        "extract_image_features",
        f"--images={folder / 'photos'}",
        f"--cnn={tiny_cnn.NAME}",
        "--cnn_weights=random",
        f"--output={folder / 'store'}",
        *flags,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_photos_of_a_folder(folder):
    (folder / "photos" / "a\nb.jpg").write_bytes(photo(3))  # No id.
    text = run(folder)
    assert f"left out: {folder}/photos/a\ufffdb.jpg" in text
    assert "--image_features=" in text
    store = open_store(folder / "store")
    assert (store.ids, store.dim) == (("a.jpg", "b.png", "more/c.jpg"), 3)


def test_all_layers_of_captioned_photos(folder):
    captions = f"--captions={folder / 'captions.csv'}", "--splits=train"
    run(folder, *captions, "--layers=full_network", "--dtype=float16")
    store = open_store(folder / "store")
    assert (store.ids, store.dim) == (("a.jpg", "b.png"), 18)
    assert store.manifest.dtype == "float16"


@pytest.fixture
def built_once(monkeypatch):
    """Builds each network once: which one it is, is not what is tried."""
    built, build = {}, image_features.build_features

    def cached(values):
        key = values.layers[0]
        return built.get(key) or built.setdefault(key, build(values))

    monkeypatch.setattr(image_features, "build_features", cached)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def joined(folder, shares):
    """Returns the content of the store that shares are joined to."""
    done = verbs.run("join_store", *shares, f"--output={folder / 'joined'}")
    assert done.returncode == 0, done.stderr
    return content(folder / "joined")


def test_shares_are_joined_to_the_bytes_of_one_run(folder, built_once):
    for name in ("0.jpg", "c.jpg"):
        (folder / "photos" / name).write_bytes(b"\xff\xd8 no photo")
    small = ("--shard_images=3", "--batch_size=2")
    run(folder, *small)
    shares = [folder / str(number) for number in (1, 2, 3)]
    for share in shares:
        run(folder, *small, f"--shard={share.name}/3", f"--output={share}")
    assert joined(folder, shares) == content(folder / "store")
    assert len(open_store(shares[2])) == 0  # Three, of two shards.
    assert "`--shard`" in run(folder, "--shard=2/1", code=1)
    there = "--shard=1/2", f"--output={shares[0]}"
    assert "share.of: 3 in" in run(folder, *small, *there, code=1)


def test_features_of_regions(folder):
    writer = FeatureWriter(
        folder / "boxes", {"method": "by hand"}, 0, kind="regions"
    )
    boxes = [[0, 0, 20, 20], [5, 5, 30, 40], [0, 0, 30, 40]]
    found = {"boxes": boxes, "counts": [2, 0, 1], "scores": [2, 1, 3]}
    writer.add_shard(["a.jpg", "b.png", "more/c.jpg"], None, **found)
    writer.finish()
    flags = "--region_features=roi_average", "--layers=second"
    run(folder, f"--regions={folder / 'boxes'}", *flags)
    store = open_store(folder / "store")
    assert store.counts.tolist() == [2, 0, 1]
    features, boxes = store.regions(0)
    assert features.shape == (2, 11) and np.isfinite(features).all()
    assert boxes.tolist() == [[0, 0, 20, 20], [5, 5, 30, 40]]
    assert store.boxes(0)[1].tolist() == [2, 1]
    assert store.sizes.tolist() == [[30, 40]] * 3
    assert store.extraction["proposals"]["method"] == "by hand"


def test_regions_of_a_share_of_boxes_are_joined(folder, built_once):
    keys = ["a.jpg", "b.png", "more/c.jpg"]
    small = ("--shard_images=2", "--layers=second")
    for shard in ("", "1/2", "2/2"):
        rows, share = take_share(shard, keys, 2, shard_images=2)
        path = folder / f"boxes{shard[:1]}"
        writer = FeatureWriter(path, share, 0, kind="regions")
        boxes = [[0, 0, 20, 20]] * len(keys[rows])
        counts = scores = [1] * len(boxes)
        writer.add_shard(keys[rows], None, boxes, counts, scores)
        writer.finish()
        given = (*small, f"--regions={path}", f"--shard={shard}")
        run(folder, *given, f"--output={folder / f'r{shard[:1]}'}")
    shares = [folder / "r2", folder / "r1"]
    assert joined(folder, shares) == content(folder / "r")
    other = f"--regions={folder / 'boxes1'}", "--shard=2/2"
    assert "`--regions`" in run(folder, *other, code=1)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--layers=fc7"], "first, pool, second, second_bn"),
        (["--cnn_weights=absent.h5"], "--cnn_weights"),
        (["--dtype=ternary"], "--dtype"),
        (["--regions=boxes", "--layers=first,pool"], "--layers"),
        (["--regions=boxes", "--grids=2"], "--grids"),
        (
            ["--regions=boxes", "--region_features=roi_average", "--scales=x"],
            "--scales",
        ),
        (["--images=absent"], "--images"),
        (["more"], "more"),
    ],
)
def test_bad_flags_say_what_to_change(folder, flags, named):
    assert named in run(folder, *flags, code=1)
