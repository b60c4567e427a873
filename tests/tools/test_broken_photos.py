"""One folder of good and broken photos, judged alike by every tool."""

import json
import os
import shutil

import pytest
import tensorflow as tf

from tbnets.data.images import decode_images
from tbnets.data.store.shards import open_store
from tbnets.serving.export import export_saved_model
from tbnets.text.vocabulary import Vocabulary
from tests import photo_files, verbs
from tests.features import tiny_cnn

NAMES = [*photo_files.CONTENTS, "link.jpg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The photos, captions that name them all, and a network."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "photos").mkdir()
    photo_files.write_all(folder / "photos")
    rows = [f"{name},a dog,train\n" for name in NAMES]
    (folder / "captions.csv").write_text(
        "image,caption,split\n" + "".join(rows), encoding="utf-8"
    )
    export_saved_model(
        Colours(),
        Vocabulary(("", "[UNK]", "dog")),
        folder / "model" / "1",
        image_shape=(8, 8, 3),
        read_photos=lambda photos: decode_images(photos, 8),
    )
    return folder


class Colours(tf.Module):
    """Embeds photos by their mean colour, as long as there are any.

    Convolutions of some CPUs can not take an empty batch.
    """

    def embed_images(self, images, training=False):
        some = tf.debugging.Assert(tf.shape(images)[0] > 0, ["no photo"])
        with tf.control_dependencies([some]):
            means = tf.reduce_mean(images, axis=[1, 2])
        return tf.math.l2_normalize(means, axis=-1)

    def embed_text(self, texts, training=False):
        ones = tf.ones_like(texts[:, :1], tf.float32)
        return tf.math.l2_normalize(tf.concat([ones] * 3, 1), axis=-1)


def run(name, *arguments):
    """Returns (exit code, standard output, standard error) of a tool."""
    ended = verbs.run(name, *arguments)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture(params=["folder", "captions"])
def photos(request, folder):
    """The flags that name the photos."""
    flags = [f"--images={folder / 'photos'}"]
    if request.param == "captions":
        flags += [
            f"--captions={folder / 'captions.csv'}",
            "--captions_format=table",
        ]
    return flags


def assert_judged(folder, output, store):
    found = photo_files.reasons(output.splitlines(), folder / "photos")
    photo_files.assert_all_left_out(found)
    store = open_store(store)
    assert sorted(store.ids) == photo_files.PHOTOS
    assert store.failed == found
    count = len(photo_files.PHOTOS)
    assert f"{count} in the store" in output
    assert f"{len(photo_files.REASONS)} left out" in output


def test_extraction(folder, photos, tmp_path):
    flags = [f"--cnn={tiny_cnn.NAME}", "--cnn_weights=random"]
    with tiny_cnn.known():
        code, output, errors = run(
            "extract_image_features",
            *(*photos, *flags),
            f"--output={tmp_path / 'store'}",
        )
    assert (code, errors) == (0, "")
    assert_judged(folder, output, tmp_path / "store")


def test_proposals_and_features_of_regions(folder, photos, tmp_path):
    pytest.importorskip("cv2", reason="needs the extra: tbnets[regions]")
    code, output, errors = run(
        "propose_regions", *photos, f"--output={tmp_path / 'boxes'}"
    )
    assert (code, errors) == (0, "")
    assert_judged(folder, output, tmp_path / "boxes")


def test_query(folder):
    code, output, errors = run(
        "query",
        f"--images={folder / 'photos'}",
        f"--model={folder / 'model' / '1'}",
        "--top=20",
        "dog",
    )
    assert code == 0
    *lines, last = errors.splitlines()
    photo_files.assert_all_left_out(
        photo_files.reasons(lines, folder / "photos")
    )
    assert len(lines) == len(photo_files.REASONS)
    assert last == f"{len(lines)} of {len(NAMES)} files left out"
    *table, empty, sheet = output.splitlines()
    answers = [line.split(None, 2)[2] for line in table[2:]]
    assert sorted(answers) == photo_files.PHOTOS
    assert (empty, sheet.split()[-1]) == (
        "",
        str(folder / "photos.tbnets" / "answers.png"),
    )


def test_query_of_a_folder_without_a_photo(folder, tmp_path):
    (tmp_path / "empty.jpg").write_bytes(b"")
    code, _, errors = run(
        "query",
        f"--images={tmp_path}",
        f"--model={folder / 'model' / '1'}",
        "dog",
    )
    assert code == 1
    assert "empty.jpg, which is empty\n1 of 1 files left out\nerror: " in errors


def test_description(folder, tmp_path):
    code, _, errors = run(
        "describe_data",
        f"--images={folder / 'photos'}",
        f"--captions={folder / 'captions.csv'}",
        "--captions_format=table",
        f"--json={tmp_path / 'found.json'}",
    )
    assert (code, errors) == (1, "")
    report = json.loads((tmp_path / "found.json").read_text("utf-8"))
    found = {}
    for problem in report["problems"]:
        name = os.path.relpath(problem["path"], folder / "photos")
        found[name] = problem["message"].partition("found that it ")[2]
    photo_files.assert_all_left_out(found)


def test_training_names_them(folder, tmp_path):
    photos = shutil.copytree(
        folder / "photos", tmp_path / "photos", symlinks=True
    )
    flags = [
        f"--images={photos}",
        f"--captions={folder / 'captions.csv'}",
        "--captions_format=table",
        "--dev_split=train",
        "--image_encoder=small",
        "--image_size=16",
        "--text_encoder=mean",
        # A step that is soon traced: files are read by its graph.
        *("--loss=infonce", "--image_units=4", "--text_units=4"),
        f"--run_dir={tmp_path / 'run'}",
    ]
    ended = verbs.train(*flags)
    assert ended.returncode == 1
    assert f"1 of {len(NAMES)} are missing, first link.jpg" in ended.stderr
    (photos / "link.jpg").unlink()
    (photos / "link.jpg").write_bytes(photo_files.CONTENTS["good.jpg"])
    ended = verbs.train(*flags)
    assert ended.returncode == 1
    count = len(photo_files.REASONS) - 1
    assert f"{count} of {len(NAMES)} that are none: " in ended.stderr
    assert f"'{photos / 'cut.webp'}', which is no whole" in ended.stderr
