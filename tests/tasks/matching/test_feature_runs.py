"""Feature stores where they are used: training, evaluation, description."""

import shutil

import numpy as np
import pytest

from tbnets.data.store.writer import FeatureWriter
from tbnets.tasks import registry, runs
from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import prepared, save

# Which graph is traced does not matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")
EXTRACTION = {"model": "Tiny", "layers": "conv1"}


def write_store(path, folder, splits, extraction=EXTRACTION):
    """Copies the features of `tiny.write_precomputed` into a store."""
    writer = FeatureWriter(path, extraction, 8)
    for split in splits:
        array = np.load(folder / f"{split}_ims.npy")
        ids = (folder / f"{split}_ids.txt").read_text().split()
        writer.add(ids[::-1], array[::-1])
    writer.finish()
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One store for each split, and one of all splits."""
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("data"))
    for split in tiny.SPLITS:
        write_store(folder / "stores" / split, folder, [split])
    write_store(folder / "all", folder, tiny.SPLITS)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A copy of what is `written`."""
    return shutil.copytree(written, tmp_path / "data")


def prepare(folder, run_dir, resume=False, **changes):
    changes = {"image_features": "all", "epochs": 1, **changes}
    return prepared(tiny.settings(folder, run_dir, **changes), resume)


def replace(folder, name, splits, extraction=EXTRACTION):
    """Puts another store in the place of one."""
    shutil.rmtree(folder / name)
    write_store(folder / name, folder, splits, extraction)


def test_mismatched_features_raise_an_error(folder, tmp_path):
    replace(folder, "stores/dev", ["dev"], {**EXTRACTION, "layers": "fc7"})
    with refused("--image_features"):
        prepare(folder, tmp_path / "run", image_features="stores/{split}")


def test_resumed_run_requires_unchanged_features(folder, tmp_path):
    save(prepare(folder, tmp_path / "run")[0], "last")
    session, _ = prepare(folder, tmp_path / "run", resume=True)
    assert session.state.fitted["image_features_made_by"]["layers"] == "conv1"
    # The same features in another partition are the same features.
    replace(folder, "all", [*tiny.SPLITS][::-1])
    prepare(folder, tmp_path / "run", resume=True)
    replace(folder, "all", tiny.SPLITS, {**EXTRACTION, "layers": "fc7"})
    with refused("--image_features"):
        prepare(folder, tmp_path / "run", resume=True)


def test_concatenated_arrays_and_stores(folder, tmp_path):
    arrays = {"image_features": "{split}_ims.npy"}
    session, _ = prepare(folder, tmp_path / "arrays", **arrays)
    assert session.state.fitted["image_features_made_by"] == {}
    pattern = "{split}_ims.npy, stores/{split},all"
    session, train = prepare(folder, tmp_path / "run", image_features=pattern)
    assert session.state.fitted["image_dim"] == 24
    one = np.load(folder / "train_ims.npy")
    found = np.concatenate(list(train.images.chunks()))
    np.testing.assert_array_equal(found, np.concatenate([one] * 3, axis=1))
    joined = session.state.fitted["image_features_made_by"]["side_by_side"]
    assert [part.get("layers") for part in joined] == [None, "conv1", "conv1"]
    save(session)
    runs.open_run(tmp_path / "run")
    prepare(folder, tmp_path / "run", resume=True, image_features=pattern)
    replace(folder, "stores/test", ["test"], {**EXTRACTION, "crops": 10})
    task = runs.open_run(tmp_path / "run").task
    with refused("--image_features"):
        task.split("test").images  # noqa: B018


def test_features_of_an_additional_split_are_checked(folder, tmp_path):
    session, _ = prepare(
        folder,
        tmp_path / "run",
        image_features="stores/{split}",
        test_split="dev",
    )
    save(session, "best")
    shutil.rmtree(folder / "stores" / "train")
    replace(folder, "stores/test", ["test"], {**EXTRACTION, "crops": 10})
    task = runs.open_run(tmp_path / "run").task
    assert task.split("dev").images.features.dim
    with refused("--image_features"):
        task.split("test").images  # noqa: B018


def test_images_shared_by_splits_are_reported(folder, tmp_path):
    def notes(image_features="all", **changes):
        changes["image_features"] = image_features
        settings = tiny.settings(folder, tmp_path / "run", **changes)
        data = registry.open_task(settings)
        return data.notes(data.fit())

    assert "overlap" not in notes(dev_split="test")
    ids = ["train3.jpg", "train5.jpg", *(f"dev{i}.jpg" for i in range(2, 6))]
    (folder / "dev_ids.txt").write_text("\n".join(ids) + "\n")
    assert "'train3.jpg'" in notes()["overlap"]
    # Row numbers are no ids: they are the same in all splits.
    for split in tiny.SPLITS:
        (folder / f"{split}_ids.txt").unlink()
    assert "overlap" not in notes(image_features="{split}_ims.npy")
