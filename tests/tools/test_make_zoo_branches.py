"""A run on features side by side becomes a folder of its branches alone."""

import json

import make_zoo
import numpy as np

from tbnets.features.text_presets import PresetFeatures
from tbnets.serving import assembled
from tbnets.serving.checksums import ANSWERS
from tbnets.serving.saved_files import read_metadata
from tbnets.tasks import runs
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests import tiny, tiny_bert, verbs
from tests.features import tiny_cnn
from tests.serving.test_photo_export import write_all
from tests.tools.test_make_zoo import CARD


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
