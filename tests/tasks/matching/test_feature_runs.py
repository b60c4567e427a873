"""Feature stores where they are used: training, evaluation, description."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from tbnets.cli import describe_data, query
from tbnets.data.store import shards
from tbnets.data.store.opening import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.tasks import runs
from tbnets.training import checkpoints, loop
from tests import tiny

EXTRACTION = {"model": "Tiny", "layers": "conv1"}


def write_store(path, folder, splits, extraction=EXTRACTION):
    """Copies the features of `tiny.write_precomputed` into a store."""
    writer = FeatureWriter(path, extraction, 8)
    for split in splits:
        array = np.load(folder / f"{split}_ims.npy")
        ids = (folder / f"{split}_ids.txt").read_text().split()
        writer.add_shard(ids[::-1], array[::-1])
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
    settings = tiny.settings(folder, run_dir, **changes)
    return runs.prepare(settings, runs.start(settings, resume))


def save(session, name="last"):
    network = session.network
    network.optimizer.build(network.trainable_variables)
    checkpoints.save_checkpoint(
        session.checkpoint(name), network, network.optimizer, session.state
    )


def replace(folder, name, splits, extraction=EXTRACTION):
    """Puts another store in the place of one."""
    shutil.rmtree(folder / name)
    write_store(folder / name, folder, splits, extraction)


@pytest.mark.parametrize("pattern", ["all", "stores/{split}"])
def test_stores_give_what_arrays_give(folder, tmp_path, pattern):
    settings = tiny.settings(folder, tmp_path / "run")
    for split in tiny.SPLITS:
        expected = tiny.split_of(settings, split).images
        other = settings.replace(image_features=pattern)
        found = tiny.split_of(other, split).images
        assert found.shape == expected.shape == (8,)
        np.testing.assert_array_equal(
            np.concatenate(list(found.chunks())),
            np.concatenate(list(expected.chunks())),
        )


def test_splits_must_be_extracted_alike(folder, tmp_path):
    prepare(folder, tmp_path / "one", image_features="stores/{split}")
    replace(folder, "stores/dev", ["dev"], {**EXTRACTION, "layers": "fc7"})
    with pytest.raises(ValueError) as error:
        prepare(folder, tmp_path / "two", image_features="stores/{split}")
    stores = folder / "stores"
    assert (
        f"--image_features={stores / 'train'}, which differ from those of "
        f"{stores / 'dev'}: layers: fc7 in {stores / 'dev'}, conv1 in "
        f"{stores / 'train'}. Extract" in str(error.value)
    )


def test_a_run_hashes_each_file_once(folder, tmp_path, monkeypatch, eagerly):
    hashed = []
    sha256 = shards.file_sha256
    monkeypatch.setattr(
        shards, "file_sha256", lambda path: hashed.append(path) or sha256(path)
    )
    session, train = prepare(folder, tmp_path / "run")
    loop.fit(session, train)
    runs.finish(session)
    prepare(folder, tmp_path / "run", resume=True)
    assert len(hashed) == len(set(hashed)) == 2 * len(tiny.SPLITS)


def test_a_changed_byte_stops_the_training(folder, tmp_path):
    path = folder / "all" / "00001.npy"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="00001.npy: .*sha256.*shard 00001"):
        prepare(folder, tmp_path / "run")


def test_stores_of_regions_are_no_image_features(folder, tmp_path):
    ids = (folder / "train_ids.txt").read_text().split()
    writer = FeatureWriter(folder / "boxes", EXTRACTION, 8, kind="regions")
    count = len(ids)
    writer.add_shard(ids, np.ones((count, 8)), np.ones((count, 4)), [1] * count)
    writer.finish()
    with pytest.raises(ValueError, match="which holds regions"):
        prepare(folder, tmp_path / "run", image_features="boxes")


def test_images_that_failed_are_told_at_training(folder, tmp_path):
    writer = FeatureWriter(folder / "part", EXTRACTION, 8)
    ids = (folder / "train_ids.txt").read_text().split()
    writer.add_shard(ids[1:], np.ones((11, 8)), failed={ids[0]: "is cut"})
    writer.finish()
    with pytest.raises(ValueError, match="1 of 12 missing.*1 failed.*is cut"):
        prepare(folder, tmp_path / "run", image_features="part")


def test_a_run_remembers_what_made_its_features(folder, tmp_path):
    session, _ = prepare(folder, tmp_path / "run")
    expected = open_features(folder / "all").made_by
    assert session.state.fitted["image_features_made_by"] == expected
    assert expected["layers"] == "conv1"
    save(session, "best")
    state = runs.open_run(tmp_path / "run").state
    assert state.fitted["image_features_made_by"] == expected


def test_a_run_goes_on_with_the_same_features(folder, tmp_path):
    save(prepare(folder, tmp_path / "run")[0])
    session, _ = prepare(folder, tmp_path / "run", resume=True)
    assert session.state.fitted["image_features_made_by"]["layers"] == "conv1"
    # The same features in another partition are the same features.
    replace(folder, "all", [*tiny.SPLITS][::-1])
    prepare(folder, tmp_path / "run", resume=True)
    replace(folder, "all", tiny.SPLITS, {**EXTRACTION, "layers": "fc7"})
    with pytest.raises(ValueError) as error:
        prepare(folder, tmp_path / "run", resume=True)
    path = tmp_path / "run" / "checkpoints" / "last.npz"
    assert f"layers: conv1 in {path}, fc7 in " in str(error.value)


@pytest.mark.parametrize("pattern", ["all", "stores/{split}"])
def test_a_run_opens_without_its_features(folder, tmp_path, pattern):
    session, _ = prepare(folder, tmp_path / "run", image_features=pattern)
    save(session, "best")
    for name in ("all", "stores"):
        shutil.rmtree(folder / name)
    state = runs.open_run(tmp_path / "run").state
    assert state.fitted["image_features_made_by"]["layers"] == "conv1"


def test_a_run_is_not_evaluated_on_other_features(folder, tmp_path):
    pattern = "stores/{split}"
    session, _ = prepare(folder, tmp_path / "run", image_features=pattern)
    save(session, "best")
    replace(folder, "stores/test", ["test"], {**EXTRACTION, "crops": 10})
    with pytest.raises(ValueError, match="crops: nothing in .*best.npz, 10 in"):
        runs.open_run(tmp_path / "run")


def test_arrays_tell_nothing_of_what_made_them(folder, tmp_path):
    session, _ = prepare(
        folder, tmp_path / "run", image_features="{split}_ims.npy"
    )
    assert session.state.fitted["image_features_made_by"] == {}


def described(records, *patterns):
    """Returns the counts and the problems of features."""
    problems = []
    found = describe_data.describe_features(records, list(patterns), problems)
    return found, problems


def test_description_tells_what_failed(folder, tmp_path):
    writer = FeatureWriter(folder / "part", EXTRACTION, 8)
    ids = (folder / "dev_ids.txt").read_text().split()
    failed = {ids[0]: "is cut", "elsewhere.jpg": "is cut"}
    writer.add_shard(ids[2:], np.ones((4, 8)), failed=failed)
    writer.finish()
    settings = tiny.settings(folder, tmp_path / "run")
    images = tiny.split_of(settings, "dev").records
    path = str(folder / "part")
    counts, problems = described(images, path)
    assert counts == {
        "feature_rows": 4,
        "features_per_row": 8,
        "images_without_features": 2,
        "images_failed": 1,
        "rows_not_finite": 0,
    }
    assert len(problems) == 2
    assert str(problems[0]) == (
        f"{path}: expected features of 'dev0.jpg' in 'dev'; found that their "
        "extraction failed: is cut"
    )
    assert "found none for 2: 'dev0.jpg', 'dev1.jpg'" in problems[1].message
    array = folder / "part" / "00000.npy"
    content = array.read_bytes()
    array.write_bytes(content[:-1] + b"@")  # A 1 is now a 4.
    counts, problems = described(images, path)
    assert counts == {} and "sha256" in problems[0].message
    array.write_bytes(b"")
    counts, problems = described(images, path)
    assert counts == {} and "00000.npy: expected shape" in problems[0].message


def test_description_of_each_splits_store(folder, tmp_path):
    settings = tiny.settings(folder, tmp_path / "run")
    images = tiny.split_of(settings, "dev").records
    counts, problems = described(images, str(folder / "stores" / "{split}"))
    assert problems == [] and counts["feature_rows"] == 6


class Rows:
    """A network that takes features, and leaves them as they are."""

    takes_photos = False

    @staticmethod
    def embed_images(rows):
        return rows


def test_query_reads_stores(folder):
    store = open_features(folder / "all")
    options = query.Options(
        image_features=[str(store.path)], image=store.ids[3], batch_size=5
    )
    ids, embeddings = query.embed_images(options, Rows)
    one = query.example_captions(options, Rows, [options.image])
    assert ids[3] == store.ids[3] and embeddings.shape == (len(store), 8)
    np.testing.assert_array_equal(embeddings[3:4], one)


@pytest.mark.real_data
def test_flickr8k_features_as_a_store(data_root, tmp_path):
    folder = data_root / "flickr8k" / "precomp_squeezenet"
    ids, arrays = [], []
    for split in ("dev", "test"):
        ids.append((folder / f"{split}_ids.txt").read_text().split())
        arrays.append(np.load(folder / f"{split}_ims.npy"))
    writer = FeatureWriter(tmp_path / "s", {"model": "SqueezeNet"}, 512)
    for names, array in zip(ids, arrays):
        for start in range(0, len(names), 300):
            rows = slice(start, start + 300)
            writer.add_shard(names[rows], array[rows])
    writer.finish()
    store = open_features(tmp_path / "s")
    store.verify()
    assert store.ids == (*ids[0], *ids[1])
    np.testing.assert_array_equal(store.take(store.rows(ids[1])), arrays[1])
    manifest = json.loads(pathlib.Path(store.path, "manifest.json").read_text())
    assert [shard["rows"] for shard in manifest["shards"]] == [
        *(300, 300, 300, 100),
        *(300, 300, 300, 100),
    ]


def test_several_features_side_by_side(folder, tmp_path):
    pattern = "{split}_ims.npy, stores/{split},all"
    session, train = prepare(folder, tmp_path / "run", image_features=pattern)
    assert session.state.fitted["image_dim"] == 24
    one = np.load(folder / "train_ims.npy")
    found = np.concatenate(list(train.images.chunks()))
    np.testing.assert_array_equal(found, np.concatenate([one] * 3, axis=1))
    joined = session.state.fitted["image_features_made_by"]["side_by_side"]
    assert [part.get("layers") for part in joined] == [None, "conv1", "conv1"]
    save(session)
    save(session, "best")
    runs.open_run(tmp_path / "run")
    prepare(folder, tmp_path / "run", resume=True, image_features=pattern)
    replace(folder, "stores/test", ["test"], {**EXTRACTION, "crops": 10})
    with pytest.raises(ValueError, match=r"side_by_side\[1\].crops: nothing"):
        runs.open_run(tmp_path / "run")


def test_side_by_side_a_changed_byte_stops_the_training(folder, tmp_path):
    path = folder / "all" / "00001.npy"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    pattern = "{split}_ims.npy,all"
    with pytest.raises(ValueError, match="00001.npy: .*sha256.*shard 00001"):
        prepare(folder, tmp_path / "run", image_features=pattern)


def test_side_by_side_features_are_described(folder):
    settings = tiny.settings(folder, "unused")
    records = tiny.split_of(settings, "dev").records
    counts, problems = described(
        records, f"{folder}/{{split}}_ims.npy", f"{folder}/all"
    )
    assert not problems
    assert counts["features_per_row"] == 16
    assert counts["images_without_features"] == 0


def test_a_split_the_run_never_saw_is_checked_too(folder, tmp_path):
    session, _ = prepare(
        folder,
        tmp_path / "run",
        image_features="stores/{split}",
        test_split="dev",
    )
    save(session, "best")
    shutil.rmtree(folder / "stores" / "train")
    replace(folder, "stores/test", ["test"], {**EXTRACTION, "crops": 10})
    runs.open_run(tmp_path / "run")
    with pytest.raises(ValueError, match="crops: nothing in .*best.npz, 10 in"):
        runs.open_run(tmp_path / "run", more_splits=["test"])


def test_side_by_side_images_that_failed_are_described(folder):
    writer = FeatureWriter(folder / "part", EXTRACTION, 8)
    ids = (folder / "dev_ids.txt").read_text().split()
    rest = np.ones((len(ids) - 1, 8))
    writer.add_shard(ids[1:], rest, failed={ids[0]: "is cut"})
    writer.finish()
    settings = tiny.settings(folder, "unused")
    records = tiny.split_of(settings, "dev").records
    counts, problems = described(records, f"{folder}/all", f"{folder}/part")
    assert counts["images_failed"] == 1
    assert "extraction failed: is cut" in problems[0].message


def test_images_that_splits_share_are_told(folder, tmp_path):
    def notes(**changes):
        session, train = prepare(folder, tmp_path / "run", **changes)
        shutil.rmtree(tmp_path / "run")
        return session.task.data.notes(session.state.fitted)

    assert "overlap" not in notes(dev_split="test")
    ids = ["train3.jpg", "train5.jpg", *(f"dev{i}.jpg" for i in range(2, 6))]
    (folder / "dev_ids.txt").write_text("\n".join(ids) + "\n")
    assert notes()["overlap"] == (
        "2 images in train and in dev, first 'train3.jpg'"
    )
    # Row numbers are no ids: they are the same in all splits.
    for split in tiny.SPLITS:
        (folder / f"{split}_ids.txt").unlink()
    assert "overlap" not in notes(image_features="{split}_ims.npy")
