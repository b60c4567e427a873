import numpy as np
import pytest
import tensorflow as tf

from tbnets.data import candidate_mining as mining
from tbnets.losses import miners, positives, triplet
from tbnets.losses.positives import batch_views
from tbnets.losses.ranking import rank
from tests import reference

# Regions, phrases, candidates, chains, share of negatives.
SHAPES = {
    "usual": (7, 6, 40, 5, 0.5),
    "few_negatives": (7, 6, 40, 5, 0.05),
    "one_thing": (3, 4, 20, 1, 0.5),
    "all_overlap": (5, 5, 30, 4, 0.0),
    "no_candidates": (3, 3, 0, 3, 0.5),
    "one_pair": (1, 1, 9, 1, 0.9),
    "no_regions": (0, 3, 9, 3, 0.5),
}
MARGIN = 0.3


def unit_rows(generator, count, dim=5):
    rows = generator.normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("f4")


def batch(name, seed=0):
    num_regions, num_phrases, num_candidates, num_chains, share = SHAPES[name]
    generator = np.random.default_rng(seed)
    rows = [
        unit_rows(generator, count)
        for count in (num_regions, num_phrases, num_candidates)
    ]
    chains = [
        generator.integers(0, num_chains, count)
        for count in (num_regions, num_phrases)
    ]
    is_negative = generator.random((num_phrases, num_candidates)) < share
    return (*rows, chains, is_negative)


def views(regions, phrases, found, chains, is_negative, num_negatives):
    """What a network does: mine, list what is used, compare with that."""
    columns, valid = mining.hardest_candidates(
        phrases @ tf.transpose(found), is_negative, num_negatives
    )
    used, places = mining.used_columns(columns, valid, len(found))
    matches = positives.Matches(*chains)
    others = batch_views(regions, phrases, matches)
    others["text_to_image"] = mining.candidate_view(
        phrases,
        regions,
        tf.gather(found, used),
        matches.rows("text_to_image"),
        places,
        valid,
    )
    return others, used.numpy()


def listed(view, num_negatives, names):
    """The triplets with a loss of a view, by the names of its candidates."""
    similarities = view.anchors.numpy() @ view.candidates.numpy().T
    columns, valid = miners.hardest_negatives(
        similarities, view.excluded, num_negatives
    )
    distances = np.sqrt(np.maximum(2 - 2 * similarities, 0))
    found = {}
    for anchor, positive in np.argwhere(view.positive.numpy()):
        for other in columns[anchor][valid[anchor]].numpy():
            gap = distances[anchor, positive] - distances[anchor, other]
            if MARGIN + gap >= 0:
                key = (int(anchor), int(positive), int(names[other]))
                found[key] = MARGIN + gap
    return found


@pytest.mark.parametrize(
    "name, num_negatives",
    [*((name, 4) for name in SHAPES), ("usual", 100), ("few_negatives", 100)],
)
def test_triplets_equal_algorithm_1(name, num_negatives):
    # Other rows for each number of negatives.
    *rows, chains, is_negative = batch(name, num_negatives)
    rows = [*map(tf.constant, rows)]
    found, used = views(*rows, chains, is_negative, num_negatives)
    wanted = reference.algorithm_1(
        *(one.numpy() for one in rows[:2]),
        chains,
        rows[2].numpy(),
        is_negative,
        (MARGIN, num_negatives),
    )
    names = np.concatenate([np.zeros(len(rows[0])), used])
    for term, own, expected in (
        ("image_to_text", range(len(rows[1])), wanted[0]),
        ("text_to_image", names, wanted[1]),
    ):
        triplets = listed(found[term], num_negatives, own)
        assert triplets.keys() == expected.keys()
        np.testing.assert_allclose(
            [triplets[key] for key in expected],
            list(expected.values()),
            atol=1e-5,
        )
        loss = triplet.TripletLoss(
            margin=MARGIN,
            num_negatives=num_negatives,
            term_weights={term: 2.0},
            reduction="sum",
        )
        output = rank(loss, found)
        np.testing.assert_allclose(
            output.total, 2 * sum(expected.values()), 1e-4, 1e-4
        )
        assert list(output.terms) == [term]


def test_mining_is_equal_in_eager_graph_and_xla_mode(compiled):
    _, phrases, found, _, is_negative = batch("usual")
    similarities = phrases @ found.T

    def mine(values, mask):
        return mining.hardest_candidates(values, mask, 4)

    columns, valid = compiled(mine)(
        tf.constant(similarities), tf.constant(is_negative)
    )
    for row, negatives in enumerate(is_negative):
        order = np.argsort(-similarities[row], kind="stable")
        expected = [j for j in order if negatives[j]][:4]
        assert columns[row][valid[row]].numpy().tolist() == expected


def test_without_negatives_the_loss_and_its_gradient_are_zero():
    *rows, chains, is_negative = batch("all_overlap")
    rows = [*map(tf.constant, rows)]
    loss = triplet.TripletLoss(term_weights={"text_to_image": 1})
    with tf.GradientTape() as tape:
        tape.watch(rows[:2])
        found, _ = views(*rows, chains, is_negative, 5)
        total = rank(loss, found).total
    assert total == 0
    for gradient in tape.gradient(
        total, rows[:2], unconnected_gradients="zero"
    ):
        assert not gradient.numpy().any()
