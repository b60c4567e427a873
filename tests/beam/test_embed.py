"""Tests of photos that are embedded on Beam, and of the use of their files."""

import errno
import functools
import pathlib
import threading

import numpy as np
import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

import tbnets  # noqa: E402
from tbnets.beam import pipeline, transforms  # noqa: E402
from tbnets.data.store.vectors import read_vectors  # noqa: E402
from tbnets.errors import FileError, UserError  # noqa: E402
from tests import photo_files, verbs  # noqa: E402

MODEL = "scenes_embedding"
IN_PROCESS = ("--", "--direct_num_workers=1", "--direct_running_mode=in_memory")


@pytest.fixture(scope="module")
def model():
    return tbnets.zoo.load(MODEL)


COMPUTED = []
"""The ids of photos that a network computed."""


@pytest.fixture(autouse=True)
def three_files(monkeypatch):
    monkeypatch.setattr(pipeline, "PHOTOS_PER_FILE", 6)
    # The command replaces it until the process ends.
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


@pytest.fixture(scope="module", autouse=True)
def loaded_once(model):
    """Loads each network once, and notes which photos it computes."""

    def rows(work, photos, known, *read):
        earlier = {*known}
        for row in compute(work, photos, known, *read):
            if row["sha256"] not in earlier:
                COMPUTED.append(row["id"])
            yield row

    compute = transforms.Encode.rows
    with pytest.MonkeyPatch.context() as patch:
        load = functools.cache(transforms.load_network)
        patch.setattr(tbnets.zoo, "open_model", lambda *_: model)
        patch.setattr(transforms, "load_network", load)
        patch.setattr(transforms.Encode, "rows", rows)
        yield


@pytest.fixture
def photos(tmp_path):
    photo_files.write_all(tmp_path / "photos")
    return tmp_path / "photos"


KEPT = []


def keep(row):
    KEPT.append(row)


def rows_of(transform, photos):
    """Returns the rows of a transform, by id."""
    KEPT.clear()
    options = PipelineOptions([*IN_PROCESS[1:], "--allow_unsafe_triggers"])
    with beam.Pipeline(options=options) as p:
        _ = p | beam.Create(photos) | transform | beam.Map(keep)
    return {row["id"]: row for row in KEPT}


def embed(photos, output, *flags):
    """Runs the command in this process; returns the ids that it computed."""
    COMPUTED.clear()
    words = f"--output={output}", *flags, *IN_PROCESS
    assert not verbs.ask("embed", photos, *words)[2]
    return sorted(filter(None, COMPUTED))


def read(folder):
    """Returns {id: embedding or status}; no id is in the files twice."""
    rows = {}
    for _, _, ids, vectors, failed in read_vectors(f"{folder}/*.parquet"):
        names = [*ids, *failed]
        assert not rows.keys() & set(names) and len(set(names)) == len(names)
        rows |= dict(zip(ids, vectors)) | failed
    return rows


def assert_equal_rows(found, wanted):
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        if isinstance(row, str):
            assert found[key].startswith(row)
        else:
            np.testing.assert_allclose(found[key], row, atol=1e-5)


def expected(model, folder):
    """Returns what `read` should return for the photos of `photo_files`."""
    paths = [folder / name for name in photo_files.PHOTOS]
    vectors = model.embed_images(paths)
    return dict(zip(photo_files.PHOTOS, vectors)) | photo_files.REASONS


def test_the_transform_gives_the_embeddings_of_the_model(model):
    contents = photo_files.CONTENTS
    rows = rows_of(tbnets.beam.EmbedPhotos(MODEL), contents.items())
    assert rows.keys() == contents.keys()
    good = {key: contents[key] for key in photo_files.PHOTOS}
    wanted = dict(zip(good, model.embed_images([*good.values()])))
    found = {key: rows[key]["embedding"] for key in good}
    assert_equal_rows(found, wanted)
    for key in contents.keys() - good.keys():
        assert rows[key]["status"].startswith(photo_files.REASONS[key])
        assert not rows[key]["embedding"].any()


def test_embeddings_that_are_not_finite_get_a_status():
    def try_images(contents):
        return np.array([[np.nan, 0], [1, 0]], np.float32), ["", ""]

    work = transforms.Encode(None, 1)
    work.encoder = transforms.Encoder({}, 2, try_images)
    first, second = work.rows([("a", b"1"), ("b", b"2")], {})
    assert first["status"] and not first["embedding"].any()
    assert second["status"] == ""


def test_the_files_have_all_photos_and_the_reasons_of_broken_ones(
    model, photos, tmp_path
):
    embed(photos, tmp_path / "out")
    assert_equal_rows(read(tmp_path / "out"), expected(model, photos))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"photos-0000{i}-of-00003.parquet" for i in range(3)}


def test_a_second_run_computes_only_new_and_changed_photos(
    model, photos, tmp_path
):
    embed(photos, tmp_path / "out")
    (photos / "good.jpg").write_bytes(photo_files.encode(seed=5))
    (photos / "link.jpg").unlink()
    (photos / "new.jpg").write_bytes(photo_files.encode(seed=6))
    (photos / "grey.jpg").unlink()
    broken = [x for x in photo_files.CONTENTS if x in photo_files.REASONS]
    found = embed(photos, tmp_path / "out")
    assert found == sorted(["good.jpg", "new.jpg", *broken])
    found = read(tmp_path / "out")
    assert "grey.jpg" not in found and "link.jpg" not in found
    for name in ("good.jpg", "new.jpg"):
        wanted = model.embed_images([photos / name])[0]
        np.testing.assert_allclose(found[name], wanted, atol=1e-5)


def test_rows_of_an_earlier_output_are_reused(photos, tmp_path):
    embed(photos, tmp_path / "old")
    known = f"--known={tmp_path / 'old'}"
    # The pattern excludes the subfolder and the link.
    found = embed(f"{photos}/*", tmp_path / "new", known)
    assert not {*found} & {*photo_files.PHOTOS}
    old, new = read(tmp_path / "old"), read(tmp_path / "new")
    assert old.keys() - new.keys() == {"Bücher/häß lich ✓.jpg", "link.jpg"}
    assert_equal_rows(new, {key: old[key] for key in new})


def test_a_killed_write_leaves_no_file_and_a_second_run_completes(
    model, photos, tmp_path, monkeypatch
):
    written = []

    def write(path, content):
        if written:
            raise FileError(errno.ENOSPC, f"{path} could not be written")
        written.append(path)
        write_file(path, content)

    write_file = pipeline._write_file
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_write_file", write)
        with pytest.raises(UserError, match="could not be written"):
            run_pipeline(photos, tmp_path / "out")
    assert [*(tmp_path / "out").iterdir()] == [pathlib.Path(*written)]
    embed(photos, tmp_path / "out")
    assert_equal_rows(read(tmp_path / "out"), expected(model, photos))


def run_pipeline(photos, output):
    verbs.call("embed", photos, f"--output={output}", *IN_PROCESS)


def test_bad_arguments_are_refused(photos, tmp_path):
    output = f"--output={tmp_path / 'out'}", "--cnn_weights=random"
    embed(photos, tmp_path / "out")
    for place, flag, error in [
        (photos, "--known=nothing", "`--known` must name an earlier output"),
        (photos, "--features=SqueezeNet", "which differs"),
        ("nothing*.jpg", "--known=", "Received: nothing*.jpg"),
        ("--runner=FlinkRunner", "--known=", "must get photos"),
    ]:
        words = flag, *output, "--", place, *IN_PROCESS[1:]
        assert error in verbs.ask("embed", *words)[2]


def test_features_of_the_files_equal_those_of_the_named_network(
    photos, tmp_path
):
    from tbnets.features.photo_features import PhotoFeatures, build_named_cnn

    flags = "--features=SqueezeNet", "--cnn_weights=random"
    embed(photos, tmp_path / "out", *flags)
    found = tbnets.open_features(f"{tmp_path / 'out'}/*.parquet")
    assert {*found.ids} == {*photo_files.PHOTOS}
    assert found.failed.keys() == photo_files.REASONS.keys()
    assert (found.made_by["cnn"], found.made_by["crops"]) == (
        "SqueezeNet",
        "one",
    )
    features = PhotoFeatures(build_named_cnn("SqueezeNet", "random"))
    wanted = features([photo_files.CONTENTS["good.jpg"]]).numpy()
    rows = found.take(found.rows(["good.jpg"]))
    np.testing.assert_allclose(rows, wanted, rtol=1e-4)


def test_a_folder_and_a_pattern_find_the_photos_of_subfolders(tmp_path):
    (tmp_path / "more").mkdir()
    for name in ("a.jpg", "more/b.jpg", "more/notes.txt"):
        (tmp_path / name).write_bytes(b"any")
    for place in (tmp_path, f"{tmp_path}/", f"{tmp_path}/**"):
        assert pipeline.find_photos(str(place))[1] == 2
    assert pipeline.find_photos(f"{tmp_path}/more/*.jpg")[1] == 1
