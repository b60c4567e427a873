"""CCA in a run: solved in one epoch, from features that do not change."""

import numpy as np
import pytest

from tbnets.tasks import runs
from tbnets.training import summary
from tests import lifecycle
from tests.tiny_runs import trained

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module", params=["matching", "localization"])
def run(request, tiny_run):
    return tiny_run(request.param, "cca")


test_it_learns = lifecycle.learns
test_it_resumes = lifecycle.resumes_bit_for_bit
test_it_opens = lifecycle.opens_with_the_same_results


def test_cca_trains_for_one_epoch(run):
    assert len(run.history) == 1
    assert 0 < run.history[0]["train/total_loss"] < 1
    # One epoch is no curve, and arrays are no photos.
    assert not [*run.run_dir.glob("*.png")]
    longer = run.settings.replace(epochs=9)
    assert summary.finished(longer, runs.start(longer, True))


def test_cca_embeds_text_features_like_its_export(tiny_run):
    run = tiny_run("matching", "cca")
    texts = np.eye(6, dtype="float32")
    found = run.model.embed_text(texts)
    expected = run.opened.network.embed_text(texts)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_frozen_word_means_have_no_trainable_weights(tiny_run, tmp_path):
    words = {"text_encoder": "mean", "word_vectors": "vectors.txt"}
    words |= {"word_vectors_training": "frozen", "cca_dim": 0}
    settings = tiny_run.settings(tmp_path / "run", "matching", "cca", **words)
    # Of 8 image and 5 text features, 5 directions are most.
    projection = trained(settings).network.text_branch.projection
    assert projection.shape == (5, 5)


def test_cca_of_regions_has_a_background(tiny_run):
    run = tiny_run("localization", "cca")
    assert run.session.network.background == 0.5
    assert run.report["test"]["phrase_to_region/recall_at_1"] > 0.6
    texts, regions = np.eye(6, dtype="f4")[:2], np.eye(9, dtype="f4")[:3]
    assert run.model.similarity(texts, regions).shape == (2, 3)
