"""The hardest candidates of phrases; tests/models has losses with them."""

import numpy as np
import tensorflow as tf

from tbnets.data import candidate_mining


def test_mining_is_equal_in_eager_graph_and_xla_mode(compiled):
    generator = np.random.default_rng(0)
    similarities = generator.normal(size=(6, 40)).astype("f4")
    is_negative = generator.random((6, 40)) < np.linspace(0, 0.5, 6)[:, None]

    def mine(values, mask):
        return candidate_mining.hardest_candidates(values, mask, 4)

    columns, valid = compiled(mine)(
        tf.constant(similarities), tf.constant(is_negative)
    )
    for row, negatives in enumerate(is_negative):
        order = np.argsort(-similarities[row], kind="stable")
        expected = [j for j in order if negatives[j]][:4]
        assert columns[row][valid[row]].numpy().tolist() == expected
