"""Tests of the confidence of search results."""

import math
import types

import numpy as np
import pytest

from tbnets.serving import calibration, formatting, search
from tbnets.serving.confidence import (
    CERTAIN,
    CONFIDENCE_FILE,
    NEIGHBOURS,
    Confidence,
    load_confidence,
)
from tests.refusals import refused

BANK = np.float16([[1, 0], [0.5, 0.5], [0, -1]])
FITTED = Confidence(BANK, 0.5, [-1.0, 2.0, 1.5, -0.25], [1.0, -0.5])


def soft_maximum(values, temperature):
    total = sum(math.exp(value / temperature) for value in values)
    return temperature * math.log(total / len(values))


def confidence_of(one, query, photo, photos):
    """The definition, for one query and one photo of a collection."""
    s, t = float(query @ photo), one.temperature
    bank = [float(photo @ row) for row in np.float32(one.bank)]
    crowd = sorted((float(query @ row) for row in photos), reverse=True)
    x1 = (s - soft_maximum(bank, t)) / t
    x2 = (s - soft_maximum(crowd[:NEIGHBOURS], t)) / t
    w0, w1, w2, w3 = one.weights
    logit = w0 + w1 * x1 + w2 * x2 + w3 * math.log(len(photos))
    return 1 / (1 + math.exp(-logit))


def model_of(texts, confidence=FITTED):
    return types.SimpleNamespace(
        embed_text=lambda rows: texts[: len(rows)],
        compare=lambda images, rows: images @ rows.T,
        has=lambda *names: False,
        confidence=confidence,
        vocabulary=None,
    )


def unit(rows):
    return np.float32(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.parametrize("num_photos, top", [(1, 5), (3, 2), (50, 5), (50, 40)])
def test_results_have_the_confidence_of_the_definition(num_photos, top):
    rng = np.random.default_rng(num_photos)
    photos = unit(rng.standard_normal([num_photos, 2]))
    texts = unit(rng.standard_normal([3, 2]))
    ranked = search.rank(model_of(texts), ["a"] * 3, (), photos, top)
    plain = search.rank(model_of(texts, None), ["a"] * 3, (), photos, top)
    np.testing.assert_array_equal(ranked.order, plain.order)
    np.testing.assert_array_equal(ranked.similarities, plain.similarities)
    assert np.isnan(plain.confidences).all()
    assert ranked.order.shape == (3, min(top, num_photos))
    expected = [
        [confidence_of(FITTED, query, photos[row], photos) for row in rows]
        for query, rows in zip(texts, ranked.order)
    ]
    np.testing.assert_allclose(ranked.confidences, expected, atol=1e-5)


def test_a_sentence_without_a_known_word_has_no_confidence():
    model = model_of(np.eye(2, dtype=np.float32))
    model.vocabulary = types.SimpleNamespace(
        words=["cat"], split=lambda texts: [text.split() for text in texts]
    )
    ranked = search.rank(model, ["ein cat", b"ein"], (), np.eye(2), 2)
    assert np.isfinite(ranked.confidences[0]).all()
    assert np.isnan(ranked.confidences[1]).all()


def test_an_empty_collection_has_no_result():
    ranked = search.rank(model_of(np.eye(2)), ["a"], (), np.zeros([0, 2]), 5)
    assert [array.shape for array in ranked] == [(1, 0)] * 3


def test_the_threshold_depends_on_the_size_of_the_collection():
    # sigmoid(1 - 0.5 log(n)), which is sigmoid(-2) at n = e ** 6.
    expected = 1 / (1 + math.exp(2))
    assert FITTED.threshold(math.exp(6)) == pytest.approx(expected)
    assert FITTED.threshold(1) == CERTAIN  # Below sigmoid(1).


def test_a_query_without_a_likely_result_gets_a_note():
    notes = [([], ""), (["x"], "unknown words: x"), ([], ""), ([], "")]
    chances = np.array([[0.5, 0.1], [0.2, 0.1], [0.1, 0.2], [np.nan] * 2])
    _, x, y, z = formatting.add_doubts(notes, chances, 0.3)
    assert x == (["x"], f"unknown words: x; {formatting.NOTHING_FITS}")
    assert (y, z) == (([], formatting.NOTHING_FITS), ([], ""))
    table = formatting.format_answers(
        "t", [1, 1], "ab", doubts=(chances[0], 0.3)
    )
    assert [line.split()[2] for line in table.splitlines()[2:]] == [
        "0.50",
        "0.10?",
    ]


def noisy_captions(count, seed=0):
    """Returns photos, two noisy captions of each, and the captions' photos."""
    rng = np.random.default_rng(seed)
    photos = unit(rng.standard_normal([count, 6]))
    owners = np.repeat(np.arange(count), 2)
    noise = rng.standard_normal([2 * count, 6]) * 0.25
    return photos, unit(photos[owners] + noise), owners


@pytest.mark.parametrize("count", [30, 300])
def test_the_confidence_is_the_fraction_of_right_results(count):
    photos, texts, owners = noisy_captions(300)
    bank = noisy_captions(300, seed=1)[1]
    fitted = calibration.calibrate(photos, texts, owners, bank)
    photos, texts, owners = noisy_captions(300, seed=2)
    chances, right = [], []
    for query, (text, own) in enumerate(zip(texts, owners)):
        rows = np.arange(count) + own // count * count
        rows = rows[rows != own] if query % 2 else rows
        ranked = search.rank(
            model_of(text[None], fitted), ["a"], (), photos[rows], 1
        )
        chances.append(ranked.confidences[0, 0])
        right.append(rows[ranked.order[0, 0]] == own)
    chances, right = np.array(chances), np.array(right)
    for half in np.array_split(np.argsort(chances), 2):
        assert abs(chances[half].mean() - right[half].mean()) < 0.08
    kept = chances[right] >= fitted.threshold(count)
    assert kept.mean() > calibration.KEPT - 0.12


def test_the_regression_finds_the_weights_that_made_the_labels():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal([20000, 2])
    chances = 1 / (1 + np.exp(-(inputs @ [2, -1] + 0.5)))
    weights = calibration.fit_logistic(inputs, rng.random(20000) < chances)
    np.testing.assert_allclose(weights, [0.5, 2, -1], atol=0.1)
    separable = calibration.fit_logistic(inputs, inputs[:, 0] > 0)
    assert np.isfinite(separable).all()


def test_few_captions_are_rejected():
    photos, texts, owners = noisy_captions(5)
    with refused("captions"):
        calibration.calibrate(photos, texts, owners, texts)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    FITTED.save(tmp_path)
    return tmp_path


def test_a_calibration_is_read_back(folder, tmp_path_factory):
    loaded = load_confidence(folder, 2)
    np.testing.assert_array_equal(loaded.bank, BANK)
    assert (loaded.weights, loaded.limits) == (FITTED.weights, FITTED.limits)
    assert loaded.temperature == FITTED.temperature
    assert load_confidence(tmp_path_factory.mktemp("none"), 2) is None
    with refused(CONFIDENCE_FILE):
        load_confidence(folder, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": [1.0]},
        {"weights": [1.0, 2.0, 3.0, "4"]},
        {"weights": [1.0, 2.0, 3.0, math.nan]},
        {"temperature": 0.0},
        {"temperature": "1"},
        {"limits": 1.0},
        {"bank": np.float32(BANK)},
        {"bank": BANK[:0]},
        {"bank": np.float16([[1, np.inf]])},
    ],
)
def test_a_damaged_calibration_is_rejected(folder, changes):
    values = {**vars(FITTED), **changes}
    Confidence(**values).save(folder)
    with refused(CONFIDENCE_FILE):
        load_confidence(folder, 2)
    (folder / CONFIDENCE_FILE).write_bytes(b"PK\x03\x04")
    with refused(CONFIDENCE_FILE):
        load_confidence(folder, 2)
