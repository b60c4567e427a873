"""The losses of judged pairs and of lists: logistic and softmax."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses.logistic import logistic_loss, softmax_loss
from tests import reference


def with_gradients(loss, num_inputs):
    """Returns a function: output and gradients of the first inputs."""

    def run(*arguments):
        inputs = [tf.convert_to_tensor(one) for one in arguments[:num_inputs]]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = loss(*inputs, *arguments[num_inputs:])
        return *output, *tape.gradient(output.total, inputs)

    return run


of_pairs = with_gradients(logistic_loss, 1)
of_lists = with_gradients(softmax_loss, 2)


def random_pairs(seed, count):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=4, size=count).astype(np.float32)
    return logits, rng.random(count) < 0.5, rng.random(count) < 0.7


def random_lists(seed, size):
    rng = np.random.default_rng(seed)
    matches = rng.normal(scale=4, size=6).astype(np.float32)
    others = rng.normal(scale=4, size=(6, size)).astype(np.float32)
    return matches, others, rng.random((6, size)) < 0.6


def assert_close(found, wanted, rtol=1e-5, atol=1e-6):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol, atol)


@pytest.mark.parametrize(
    "run, loops, draw, sizes",
    [
        (of_pairs, reference.logistic_loss, random_pairs, (7, 1)),
        (of_lists, reference.softmax_loss, random_lists, (9, 2, 0)),
    ],
)
def test_values_and_slopes_equal_the_reference(
    run, loops, draw, sizes, compiled
):
    """Eagerly of all sizes; compiled, which takes a while, of the largest."""
    compiled_run = compiled(run)
    for size in sizes if compiled_run is run else sizes[:1]:
        for seed in range(3):
            arguments = draw(seed, size)
            assert_close(
                compiled_run(*map(tf.constant, arguments)), loops(*arguments)
            )


def test_literal_losses():
    # A match at 0: log 2. No match at log 3: log(1 + 3) = 2 log 2.
    log2, log3 = math.log(2), math.log(3)
    found = logistic_loss([0.0, log3], [True, False])
    assert_close(found, [1.5 * log2, log2, 2 * log2, 0])
    # 1 of 1 + 1 + 2, and 3 of 3 + 1; the second stands before its only other.
    found = softmax_loss(
        [0.0, log3], [[0.0, log2], [0.0, 50.0]], [[True, True], [True, False]]
    )
    assert_close(found, [(math.log(4) + math.log(4 / 3)) / 2, 0.5])
    # A tie is no first place.
    assert softmax_loss([1.0], [[1.0]], [[True]]).ranked_first == 0


def test_large_numbers_neither_overflow_nor_vanish():
    arguments = [-1e4, 1e4, 20.0], [True, True, True], [True] * 3
    total, *_, gradient = of_pairs(*arguments)
    assert float(total) == pytest.approx(1e4 / 3)
    # The slope of a match at 20 is -1 / (1 + e^20) / 3.
    assert_close(gradient, [-1 / 3, 0, -1 / (1 + math.exp(20)) / 3], atol=0)
    found = of_lists([-1e4, 1e4], [[1e4], [-1e4]], [[True], [True]])
    assert_close(found, [1e4, 0.5, [-0.5, 0], [[0.5], [0]]])


def test_invalid_pairs_and_lists_do_not_count():
    no_pairs = of_pairs([np.nan, np.inf], [True, False], [False, False])
    arguments = [np.nan, 2.0], [[np.inf], [1.0]]
    no_lists = of_lists(*arguments, [[False], [False]])
    for value in (*no_pairs, *no_lists):
        np.testing.assert_array_equal(value, np.zeros_like(value))
    total, first, by_match, by_other = of_lists(*arguments, [[False], [True]])
    assert float(total) == pytest.approx(math.log(1 + math.exp(-1)))
    assert (float(first), by_match[0], by_other[0, 0]) == (1, 0, 0)


def test_half_precision_logits_give_float32_losses():
    ones = tf.ones((2, 3), tf.bfloat16)
    for output in (
        logistic_loss(ones[0], [True, True, False]),
        softmax_loss(ones[:, 0], ones, tf.ones((2, 3), tf.bool)),
    ):
        assert {value.dtype for value in output} == {tf.float32}
