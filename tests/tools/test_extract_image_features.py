"""Tests of the extraction's command line."""

import re
import signal
import time

import numpy as np
import pytest

from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter
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
