import numpy as np
import pytest

from tbnets.training.health import diagnose, embedding_health


def test_health_of_a_collapse_and_of_a_full_space():
    same = np.tile([[0.6, 0.8]], (4, 1))
    assert embedding_health(same)["mean_cosine"] == pytest.approx(1)
    assert embedding_health(same)["dimension_spread"] == pytest.approx(0)
    # Four directions of a cross: cosines 0, 0, -1 with the others; each
    # dimension is (1, -1, 0, 0), of deviation sqrt(1/2), times sqrt(2).
    cross = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    found = embedding_health(cross)
    assert found["mean_cosine"] == pytest.approx(-1 / 3)
    assert found["dimension_spread"] == pytest.approx(1)


def test_mean_cosine_equals_its_loop():
    vectors = np.random.default_rng(0).normal(size=(6, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [vectors[i] @ vectors[j] for i in range(6) for j in range(i)]
    found = embedding_health(vectors)["mean_cosine"]
    assert found == pytest.approx(np.mean(pairs))


def test_one_row_has_no_pairs():
    assert embedding_health([[1.0, 0.0]])["mean_cosine"] == 0


def plateau(loss=0.05, active=1.0):
    return {
        f"train/{term}_{kind}": value
        for term in ("image_to_text", "text_to_image")
        for kind, value in (("loss", loss), ("active", active))
    }


def test_the_margin_plateau_is_named():
    assert "margin plateau" in diagnose(plateau(), 0.05, "mean_active")
    assert diagnose(plateau(loss=0.2), 0.05, "mean_active") is None
    assert diagnose(plateau(active=0.5), 0.05, "mean_active") is None
    assert diagnose(plateau(), 0.05, "sum") is None


def test_a_collapse_is_named():
    logs = {"health/images/mean_cosine": 0.99}
    assert "collapsed" in diagnose(logs, 0.05, "sum")
    assert diagnose({"health/images/mean_cosine": 0.5}, 0.05, "sum") is None


@pytest.mark.parametrize(
    "name, bad, good, advice",
    [
        ("pair_accuracy", 0.5, 0.6, "tossing a coin"),
        ("ranked_first", 0.0, 0.01, "says the same of all"),
    ],
)
def test_a_network_that_judges_pairs_may_have_any_embeddings(
    name, bad, good, advice
):
    logs = {"health/images/mean_cosine": 0.99, f"train/{name}": good}
    assert diagnose(logs, None, None) is None
    assert advice in diagnose(logs | {f"train/{name}": bad}, None, None)
