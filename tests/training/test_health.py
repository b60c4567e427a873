import numpy as np
import pytest

from tbnets.training.summary import diagnose, embedding_health


def test_embedding_health_of_collapsed_and_spread_embeddings():
    same = np.tile([[0.6, 0.8]], (4, 1))
    assert embedding_health(same)["mean_cosine"] == pytest.approx(1)
    assert embedding_health(same)["dimension_spread"] == pytest.approx(0)
    # Four directions of a cross: cosines 0, 0, -1 with the others; each
    # dimension is (1, -1, 0, 0), of deviation sqrt(1/2), times sqrt(2).
    cross = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    found = embedding_health(cross)
    assert found["mean_cosine"] == pytest.approx(-1 / 3)
    assert found["dimension_spread"] == pytest.approx(1)

    assert embedding_health([[1.0, 0.0]])["mean_cosine"] == 0  # No pairs.


def plateau(loss=0.05, active=1.0, recall_sum=3.0, images=1000):
    """Returns the scalars of an epoch; the recall sum of chance is 3.2."""
    return {
        f"train/{term}_{kind}": value
        for term in ("image_to_text", "text_to_image")
        for kind, value in (("loss", loss), ("active", active))
    } | {
        "dev/recall_sum": recall_sum,
        "dev/image_to_text/num_queries": images,
        **{f"dev/image_to_text/recall_at_{k}": 0.0 for k in (1, 5, 10)},
    }


def told(*rows, margin=0.05, reduction="mean_active"):
    return "margin plateau" in (diagnose(rows, margin, reduction) or "")


def test_a_loss_at_the_margin_is_diagnosed():
    assert told(*[plateau()] * 3)
    assert told(plateau(loss=0.2), *[plateau()] * 3)
    assert not told(*[plateau()] * 2)
    assert not told(plateau(loss=0.2), *[plateau()] * 2)
    assert not told(*[plateau(active=0.5)] * 3)
    assert not told(*[plateau()] * 3, reduction="sum")
    assert diagnose([plateau(0.0)] * 3, None, None) is None


@pytest.mark.parametrize("images, chance", [(1000, 3.2), (22, 145.5), (5, 440)])
def test_no_plateau_is_diagnosed_if_recall_beats_chance(images, chance):
    def rows(*sums):
        return [plateau(recall_sum=each, images=images) for each in sums]

    assert told(*rows(chance, chance - 1, chance))
    assert told(*rows(*[chance * 1.1] * 3))
    assert not told(*rows(chance, chance, min(1.6 * chance, 550)))


def test_no_plateau_is_diagnosed_if_phrases_are_localized_better():
    def rows(*recalls):
        kept = [
            {k: v for k, v in plateau().items() if k.startswith("train/")}
            for _ in recalls
        ]
        key = "dev/phrase_to_region/recall_at_1"
        return [row | {key: one} for row, one in zip(kept, recalls)]

    assert told(*rows(0.3, 0.3, 0.29, 0.3))
    assert not told(*rows(0.3, 0.3, 0.31, 0.3))


def test_a_collapse_is_diagnosed():
    logs = {"health/images/mean_cosine": 0.99}
    for loss in ((0.05, "sum"), (None, None)):
        assert "collapsed" in diagnose([logs], *loss)
    assert diagnose([{"health/images/mean_cosine": 0.5}], 0.05, "sum") is None


@pytest.mark.parametrize(
    "name, bad, good, advice",
    [
        ("pair_accuracy", 0.5, 0.6, "better than chance"),
        ("ranked_first", 0.0, 0.01, "scores are equal"),
    ],
)
def test_no_collapse_is_diagnosed_for_similarity_networks(
    name, bad, good, advice
):
    logs = {"health/images/mean_cosine": 0.99, f"train/{name}": good}
    assert diagnose([logs], None, None) is None
    assert advice in diagnose([logs | {f"train/{name}": bad}], None, None)
