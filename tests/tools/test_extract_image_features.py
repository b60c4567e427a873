"""Tests of the extraction's command line."""

import re
import signal
import time

import numpy as np
import pytest

from tbnets.data.store.joining import take_share
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.tasks.recipes import image_features
from tests import fresh, verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo

VERB = "extract_image_features"


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known():
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


SQUEEZENET = ("--cnn=SqueezeNet", "--image_size=48")


def command(folder, *flags, network=(f"--cnn={tiny_cnn.NAME}",)):
    return [
        f"--images={folder / 'photos'}",
        *network,
        "--cnn_weights=random",
        f"--output={folder / 'store'}",
        *flags,
    ]


def run(folder, *flags, **options):
    done = verbs.run(VERB, *command(folder, *flags, **options))
    return done.returncode, done.stdout + done.stderr


def test_photos_of_a_folder(folder):
    (folder / "photos" / "broken.jpg").write_bytes(b"\xff\xd8 no photo")
    code, text = run(folder)
    assert code == 0, text
    assert "broken.jpg, which is of another kind" in text
    assert "3 in the store, 1 left out" in text
    assert "--image_features=" in text
    store = open_store(folder / "store")
    assert store.ids == ("a.jpg", "b.png", "more/c.jpg")
    assert store.dim == 3
    assert list(store.failed) == ["broken.jpg"]


def test_photos_whose_names_are_no_ids_are_left_out_and_told(folder):
    (folder / "photos" / "a\nb.jpg").write_bytes(photo(3))
    code, text = run(folder)
    assert code == 0, text
    odd = folder / "photos" / "a\ufffdb.jpg"
    assert f"left out: {odd}, which has a name that is no line of Un" in text
    assert open_store(folder / "store").ids == ("a.jpg", "b.png", "more/c.jpg")


def test_all_layers_of_captioned_photos(folder):
    code, text = run(
        folder,
        f"--captions={folder / 'captions.csv'}",
        "--captions_format=table",
        "--splits=train",
        "--layers=full_network",
        "--dtype=float16",
        network=SQUEEZENET,
    )
    assert code == 0, text
    store = open_store(folder / "store")
    assert store.ids == ("a.jpg", "b.png")
    assert store.dim == 2944 and store.manifest.dtype == "float16"


def test_killed_by_the_system_goes_on_to_the_same_bytes(folder):
    for i in range(12):
        (folder / "photos" / f"{i}.jpg").write_bytes(photo(i))
    small = ("--shard_images=2", "--batch_size=2")
    line = command(folder, *small, network=SQUEEZENET)
    killed = fresh.start(f"tools/{VERB}.py", *line)
    while not (folder / "store" / "00002.npy").exists():
        assert killed.is_alive()
        time.sleep(0.01)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    code, text = run(folder, *small, network=SQUEEZENET)
    assert code == 0, text
    straight = f"--output={folder / 'straight'}"
    assert run(folder, *small, straight, network=SQUEEZENET)[0] == 0
    names = sorted(path.name for path in (folder / "straight").iterdir())
    assert names == sorted(path.name for path in (folder / "store").iterdir())
    for name in names:
        straight = (folder / "straight" / name).read_bytes()
        assert (folder / "store" / name).read_bytes() == straight


@pytest.fixture
def built_once(monkeypatch):
    """Builds each network once: which one it is, is not what is tried."""
    built, build = {}, image_features.build_features

    def cached(values):
        key = values.layers[0]
        return built.get(key) or built.setdefault(key, build(values))

    monkeypatch.setattr(image_features, "build_features", cached)


def in_shares(folder, of, *flags):
    """Extracts each share, joins them; returns the bytes of the files."""
    output = folder / "joined"
    shares = [folder / f"joined.{i + 1}" for i in range(of)]
    for number, share in enumerate(shares, 1):
        line = (*flags, f"--shard={number}/{of}", f"--output={share}")
        code, text = run(folder, *line)
        assert code == 0 and "join all shares by" in text, text
    done = verbs.run("join_store", *shares, f"--output={output}")
    assert done.returncode == 0, done.stderr
    return content(output)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_shares_are_joined_to_the_bytes_of_one_run(folder, built_once):
    for name in ("0.jpg", "c.jpg"):
        (folder / "photos" / name).write_bytes(b"\xff\xd8 no photo")
    small = ("--shard_images=3", "--batch_size=2")
    assert run(folder, *small)[0] == 0
    assert in_shares(folder, 3, *small) == content(folder / "store")
    assert len(open_store(folder / "joined.3")) == 0  # Three, of two shards.
    code, text = run(folder, "--shard=2/1")
    assert code == 1 and "`--shard` must be I/N" in text, text
    there = f"--output={folder / 'joined.1'}"
    code, text = run(folder, *small, "--shard=1/2", there)
    assert code == 1 and "share.of: 3 in" in text, text


@pytest.mark.parametrize(
    "kind, dim", [("warp", 6), ("roi_pool", 6), ("roi_average", 11)]
)
def test_features_of_regions(folder, kind, dim):
    writer = FeatureWriter(
        folder / "boxes", {"method": "by hand"}, 0, kind="regions"
    )
    writer.add_shard(
        ["a.jpg", "b.png", "more/c.jpg"],
        None,
        boxes=[[0, 0, 20, 20], [5, 5, 30, 40], [0, 0, 30, 40]],
        counts=[2, 0, 1],
        scores=[2, 1, 3],
    )
    writer.finish()
    flags = (
        f"--regions={folder / 'boxes'}",
        f"--region_features={kind}",
        "--layers=second",
    )
    code, text = run(folder, *flags)
    assert code == 0, text
    assert f"{dim} features a region" in text
    store = open_store(folder / "store")
    assert store.counts.tolist() == [2, 0, 1]
    features, boxes = store.regions(0)
    assert features.shape == (2, dim) and np.isfinite(features).all()
    assert store.boxes(0)[1].tolist() == [2, 1]
    assert store.sizes.tolist() == [[30, 40]] * 3
    assert boxes.tolist() == [[0, 0, 20, 20], [5, 5, 30, 40]]
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
        code, text = run(folder, *given, f"--output={folder / f'r{shard[:1]}'}")
        assert code == 0, text
    shares = [folder / "r2", folder / "r1"]
    verbs.run("join_store", *shares, f"--output={folder / 'joined'}")
    assert content(folder / "joined") == content(folder / "r")
    code, text = run(folder, f"--regions={folder / 'boxes1'}", "--shard=2/2")
    assert code == 1 and "`--regions` must be the boxes of all" in text, text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--layers=fc7"], "must be one of .*first, pool, second, second_bn"),
        (["--cnn_weights=absent.h5"], "which is not a file"),
        (["--dtype=ternary"], "should be one of <float32|float16>"),
        (["--regions=boxes", "--layers=first,pool"], "with one layer"),
        (
            ["--regions=boxes", "--grids=2"],
            "with --region_features=roi_average",
        ),
        (
            [
                "--regions=boxes",
                "--region_features=roi_average",
                "--scales=1,x",
            ],
            "`--scales` must be floats.*--scales=1,x",
        ),
        (["--images=absent"], "`--images` must be a folder"),
        (["more"], "must have flags only"),
    ],
)
def test_bad_flags_say_what_to_change(folder, flags, message):
    code, text = run(folder, *flags)
    assert code == 1
    assert re.search(message, text), text


def test_a_store_made_otherwise_is_refused_with_the_difference(folder):
    assert run(folder)[0] == 0
    code, text = run(folder, "--crops=ten")
    assert code == 1
    assert "crops" in text and "ten" in text and "one" in text
