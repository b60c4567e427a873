import math

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses.logistic import logistic_loss, softmax_loss
from tests import reference


def random_pairs(seed, count):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=4, size=count).astype(np.float32)
    return logits, rng.random(count) < 0.5, rng.random(count) < 0.7


def with_gradient(logits, is_match, valid):
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        output = logistic_loss(logits, is_match, valid)
    return *output, tape.gradient(output.total, logits)


@pytest.mark.parametrize("count", [1, 7])
def test_loss_is_that_of_the_definition(count, compiled):
    run = compiled(with_gradient)
    for seed in range(3):
        given = random_pairs(seed, count)
        found = run(*map(tf.constant, given))
        for one, other in zip(found, reference.logistic_loss(*given)):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def test_slopes_are_the_differences_of_the_loss():
    logits, is_match, valid = random_pairs(1, 8)
    *_, gradient = with_gradient(logits, is_match, valid)
    for p in range(8):
        step = np.zeros(8)
        step[p] = 1e-4
        up, down = (
            reference.logistic_loss(logits + s, is_match, valid)[0]
            for s in (step, -step)
        )
        assert float(gradient[p]) == pytest.approx((up - down) / 2e-4, abs=1e-6)


def test_literal_loss():
    # A match at 0: log 2. No match at log 3: log(1 + 3) = 2 log 2.
    found = logistic_loss([0.0, math.log(3)], [True, False])
    log2 = math.log(2)
    np.testing.assert_allclose(
        list(found), [1.5 * log2, log2, 2 * log2, 0], rtol=1e-6
    )


def test_large_logits_neither_overflow_nor_vanish():
    given = [-1e4, 1e4, 20.0], [True, True, True], [True] * 3
    total, *_, gradient = with_gradient(*given)
    assert float(total) == pytest.approx(1e4 / 3)
    # The slope of a match at 20 is -1 / (1 + e^20) / 3.
    np.testing.assert_allclose(
        gradient, [-1 / 3, 0, -1 / (1 + math.exp(20)) / 3], rtol=1e-5
    )


def test_no_valid_pair_gives_0_with_finite_gradients():
    given = [np.nan, np.inf], [True, False], [False, False]
    for value in with_gradient(*given):
        np.testing.assert_array_equal(value, np.zeros_like(value))


def test_half_precision_is_widened():
    output = logistic_loss(tf.ones(3, tf.bfloat16), [True, True, False])
    assert {value.dtype for value in output} == {tf.float32}


def random_lists(seed, size):
    rng = np.random.default_rng(seed)
    matches = rng.normal(scale=4, size=6).astype(np.float32)
    others = rng.normal(scale=4, size=(6, size)).astype(np.float32)
    return matches, others, rng.random((6, size)) < 0.6


def with_list_gradients(matches, others, valid):
    matches, others = map(tf.convert_to_tensor, (matches, others))
    with tf.GradientTape() as tape:
        tape.watch([matches, others])
        output = softmax_loss(matches, others, valid)
    return *output, *tape.gradient(output.total, [matches, others])


@pytest.mark.parametrize("size", [0, 2, 9])
def test_softmax_loss_is_that_of_the_definition(size, compiled):
    run = compiled(with_list_gradients)
    for seed in range(3):
        given = random_lists(seed, size)
        found = run(*map(tf.constant, given))
        for one, other in zip(found, reference.softmax_loss(*given)):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def test_literal_softmax_loss():
    # 1 of 1 + 1 + 2, and 3 of 3 + 1; the second stands before its only other.
    found = softmax_loss(
        [0.0, math.log(3)],
        [[0.0, math.log(2)], [0.0, 50.0]],
        [[True, True], [True, False]],
    )
    wanted = (math.log(4) + math.log(4 / 3)) / 2
    np.testing.assert_allclose(list(found), [wanted, 0.5], rtol=1e-6)


def test_softmax_loss_knows_differences_alone():
    matches, others, valid = random_lists(0, 5)
    wanted = with_list_gradients(matches, others, valid)
    found = with_list_gradients(matches + 100, others + 100, valid)
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, 1e-3, 1e-5)


def test_a_match_that_ties_is_not_first():
    assert softmax_loss([1.0], [[1.0]], [[True]]).ranked_first == 0


def test_large_gaps_neither_overflow_nor_vanish():
    given = [-1e4, 1e4], [[1e4], [-1e4]], [[True], [True]]
    total, first, by_match, by_other = with_list_gradients(*given)
    assert (float(total), float(first)) == (1e4, 0.5)
    np.testing.assert_array_equal(by_match, [-0.5, 0])
    np.testing.assert_array_equal(by_other, [[0.5], [0]])


def test_lists_without_others_do_not_count():
    given = [np.nan, 2.0], [[np.inf], [1.0]], [[False], [True]]
    total, first, by_match, by_other = with_list_gradients(*given)
    assert float(total) == pytest.approx(math.log(1 + math.exp(-1)))
    assert float(first) == 1
    assert by_match[0] == 0 and by_other[0, 0] == 0
    nothing = with_list_gradients(*given[:2], [[False], [False]])
    for value in nothing:
        np.testing.assert_array_equal(value, np.zeros_like(value))


def test_lists_of_half_precision_are_widened():
    ones = tf.ones((2, 3), tf.bfloat16)
    output = softmax_loss(ones[:, 0], ones, tf.ones((2, 3), tf.bool))
    assert {value.dtype for value in output} == {tf.float32}
