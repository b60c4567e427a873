"""A run on features side by side becomes a folder of its branches alone."""

import csv
import json

import make_zoo
import numpy as np

from tbnets.data.store.reader import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import PhotoFeatures
from tbnets.features.text_presets import PresetFeatures
from tbnets.serving import assembled
from tbnets.serving.checksums import ANSWERS
from tbnets.serving.saved_files import read_metadata
from tbnets.tasks import runs
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests import tiny, tiny_bert, verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.tools.test_make_zoo import CARD

COUNTS = {"train": 6, "dev": 3, "test": 3}


def write_all(folder):
    """Writes photos, captions, weights and features; `tiny_cnn` is known."""
    (folder / "photos").mkdir()
    rows = []
    for split, count in COUNTS.items():
        for i in range(count):
            name = f"{split}{i}.jpg"
            (folder / "photos" / name).write_bytes(photo(len(rows)))
            rows.append((name, f"{tiny.WORDS[i]} runs", split))
    with open(folder / "captions.csv", "w", newline="") as file:
        csv.writer(file).writerows([("image", "caption", "split"), *rows])
    write_features(folder, [name for name, _, _ in rows])


def write_features(folder, names):
    """Writes the weights of a network, and its features of photos.

    Another store has features of larger photos, cut into ten crops.
    """
    weights = str(folder / "cnn.weights.h5")
    cnn = build_cnn(tiny_cnn.NAME, top=False)
    cnn.network.save_weights(weights)
    large = build_cnn(tiny_cnn.NAME, weights, 12, top=False)
    contents = [(folder / "photos" / name).read_bytes() for name in names]
    for name, features in {
        "store": PhotoFeatures(cnn, ["first", "last"]),
        "large": PhotoFeatures(large, ["last"], "ten"),
    }.items():
        described = features.description(), features.dim
        writer = FeatureWriter(folder / name, *described)
        writer.add(names, features(contents).numpy())
        writer.finish()


def test_a_model_without_its_networks_is_made_and_measured(
    tmp_path, eagerly, monkeypatch
):
    tiny_bert.write_folder(tmp_path / "bert")
    encoder = f"hub:{tmp_path / 'bert'}"
    monkeypatch.setattr(assembled, "ENCODER", encoder)
    with tiny_cnn.known(lambda: tmp_path / "cnn.weights.h5"):
        write_all(tmp_path)
        line = tiny.arguments(
            tmp_path,
            tmp_path / "run",
            captions="captions.csv",
            image_features="store,large",
            image_transform="signed_sqrt",
            text_encoder=f"{encoder},mean",
            epochs=1,
        )
        trained = verbs.train(*(f"--{n}={v}" for n, v in line.items()))
        assert trained.returncode == 0, trained.stderr
        (tmp_path / "card.md").write_text(CARD)
        # The model with its networks, by which the branches are measured.
        models, opened = [], make_zoo.opened
        monkeypatch.setattr(
            make_zoo,
            "opened",
            lambda *folder: models.append(opened(*folder)) or models[-1],
        )
        told = verbs.ask(
            "make_zoo",
            f"--run_dir={tmp_path / 'run'}",
            "--name=tiny",
            "--branches",
            f"--zoo={tmp_path / 'zoo'}",
            f"--card={tmp_path / 'card.md'}",
            f"--images={tmp_path / 'photos'}",
            "--most_lost=5",
            "--table",
        )
        assert told[2] == ""
        session = runs.open_run(str(tmp_path / "run"))
    texts = ["a red dog", "", "two dogs"]
    words = Tokenizer(Vocabulary(session.state.fitted["words"]))(texts)
    features = PresetFeatures.of(encoder).transform(texts).view(np.int32)
    rows = np.concatenate([features, words], axis=1)
    expected = session.network.embed_text(rows)
    found = models[0].embed_text(texts)  # float16 weights
    np.testing.assert_allclose(found, expected, atol=2e-3)
    features = open_features(tmp_path / "store", tmp_path / "large")
    names = ("test0.jpg", "train5.jpg", "dev2.jpg")
    rows = features.take(features.rows(names))
    photos = [tmp_path / "photos" / name for name in names]
    expected = session.network.embed_images(rows)
    for found in (
        models[0].embed_images(photos),
        models[0].embed_features(rows),
    ):
        np.testing.assert_allclose(found, expected, atol=2e-3)
    part = tmp_path / "zoo/tiny"
    metrics = json.loads((part / "metrics.json").read_text())
    assert metrics["takes"] == "photos"
    assert metrics["max_pixels"] == 80_000_000
    assert metrics["networks"] == [tiny_cnn.NAME] * 2
    signatures = read_metadata(part / "1")["signatures"]
    assert {*signatures["embed_image"]["inputs"]} == {"image_features"}
    assert {*signatures["embed_text"]["inputs"]} == {"features_and_words"}
    answers = json.loads((part / ANSWERS).read_text())
    assert len(answers["photos"]) == 3 and len(answers["texts"]) == 2
    report = json.loads((tmp_path / "run/metrics.json").read_text())
    lost = report["test"]["recall_sum"] - metrics["test"]["recall_sum"]
    assert abs(lost) < 5
