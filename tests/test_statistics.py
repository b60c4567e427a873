"""Tests of statistics in one pass."""

import numpy as np
import pytest

from tbnets.layers.feature_transform import StreamingStatistics


@pytest.mark.parametrize("sizes", [[1], [20], [7, 0, 13], [1] * 20])
def test_streaming_statistics_agree_with_one_pass_over_all(sizes):
    rows = np.random.default_rng(1).normal(1e4, 1e-2, (sum(sizes), 3))
    statistics = StreamingStatistics()
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        statistics.update(batch)
    assert statistics.count == len(rows)
    np.testing.assert_allclose(statistics.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(statistics.variance, rows.var(axis=0), rtol=1e-6)


def test_noise_on_a_constant_is_no_deviation():
    statistics = StreamingStatistics()
    for _ in range(3):
        statistics.update(np.full((5, 1), 0.1))
    assert statistics.deviation.tolist() == [0.0]
