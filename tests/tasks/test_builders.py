import collections
import gc
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.branch import Branch, SeededDropout
from tbnets.losses.presets import TERMS
from tbnets.tasks import builders, registry
from tbnets.tasks.settings.settings import ALL
from tests import tiny

SIZES = {"image_dim": 8, "text_dim": 7, "region_dim": 5}
FITTED = {**SIZES, "words": ["", "[UNK]", "dog"]}


def test_loss_follows_its_flags():
    changes = {
        "margin": 0.3,
        "num_negatives": 4,
        "text_to_image_weight": 2.5,
        "text_to_text_weight": 0.05,
        "image_to_image_weight": 0.25,
        "distance": "cosine",
        "reduction": "sum",
        "negatives": "top_k",
    }
    loss = builders.build_loss(tiny.settings("data", "run", **changes))
    assert loss.get_config() == {
        "margin": 0.3,
        "num_negatives": 4,
        "term_weights": dict(zip(TERMS, (1.0, 2.5, 0.05, 0.25))),
        "distance": "cosine",
        "reduction": "sum",
        "negatives": "top_k",
        "gradient": "sparse",
    }
    hardest = changes | {"negatives": "hardest"}
    loss = builders.build_loss(tiny.settings("data", "run", **hardest))
    assert loss.num_negatives is None


def test_a_softmax_loss_follows_its_flags():
    given = {"loss": "infonce", "temperature": 0.05, "text_to_text_weight": 0.2}
    found = tiny.settings("data", "run", **given)
    weights = dict(zip(TERMS, (0.5, 0.5, 0.2, 0.0)))
    assert builders.build_loss(found).get_config() == {
        "temperature": 0.05,
        "term_weights": weights,
        "similarity_dtype": "float32",
    }
    unread = ("margin", "negatives", "num_negatives", "distance", "reduction")
    assert {*unread} <= found.unused().keys()
    assert "temperature" in tiny.settings("data", "run").unused()


def test_weights_depend_only_on_the_seed():
    def kernel(seed):
        found = tiny.settings("data", "run", seed=seed, text_encoder="features")
        network = builders.build_network(found, FITTED)
        return network.image_branch.weights[0].numpy()

    np.testing.assert_array_equal(kernel(3), kernel(3))
    assert not np.allclose(kernel(3), kernel(4))


def text_encoder_of(model):
    """Returns a text encoder that a model supports."""
    return {"hm_lstm": "h_lstm", "cca": "features"}.get(model, "mean")


RATES = {
    "input_dropout": 0.4,
    "dropout": 0.5,
    "word_dropout": 0.45,
    "head_dropout": 0.55,
}


@pytest.mark.parametrize("model", builders.MODELS)
def test_dropout_masks_of_all_layers_differ(model):
    found = tiny.settings(
        "data",
        "run",
        seed=3,
        model=model,
        text_encoder=text_encoder_of(model),
        image_units="6,5,4",
        text_units="6,5,4",
        head_units="4,3,2",
        cca_dim=2,
        **RATES,
    )
    inner = builders.build_network(found, FITTED)._flatten_layers()
    inner = [*inner]
    branches = sum(isinstance(one, Branch) for one in inner)
    # On input and after two ReLUs of each branch, on words, in the head.
    counts = dict(zip(RATES, (branches, 2 * branches, 1, 3)))
    read = [flag.name for flag in found.flags_read() if flag.name in RATES]
    layers = [one for one in inner if isinstance(one, SeededDropout)]
    rates = collections.Counter(one.rate for one in layers)
    assert rates == {RATES[name]: counts[name] for name in read}
    seeds = [one.seed for one in layers]
    assert len(set(seeds)) == len(seeds)
    ones = tf.ones([4, 64])
    masks = [one(ones, training=True).numpy() > 0 for one in layers]
    for one, other in itertools.combinations(masks, 2):
        # Of 256 units two layers agree on about half.
        assert 0.3 < (one == other).mean() < 0.7


RUNS = [
    (task, model)
    for task in registry.TASKS
    for model in builders.MODELS
    if task in (builders.MODELS[model].tasks or registry.TASKS)
]
VALUES = {
    bool: [True, False],
    float: [0.125, 0.25],
    int: [3, 4],
    list[int]: ["5,4", "7,4"],
}


def other_value(flag):
    """Returns a value of a flag that is not its default; None of strings."""
    known = [*flag.choices, *VALUES.get(flag.type, ())]
    if flag.name == "image_encoder":
        known = ["small"]
    if flag.name == "num_scenes":
        known = ["5,4,3"]
    return next((value for value in known if value != flag.default), None)


@pytest.mark.parametrize("task, model", RUNS)
def test_unused_flags_do_not_change_the_network(task, model, monkeypatch):
    # Clearing a session would pass over all that other tests have made.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    line = {
        "task": task,
        "model": model,
        "text_encoder": text_encoder_of(model),
        "image_units": "5,4",
        "text_units": "5,4",
        "cca_dim": 3,
        "rnn_units": 4,
    }

    def configuration(more):
        found = tiny.parsed(line | more)
        keras.backend.clear_session()  # Names of layers begin anew.
        network = builders.build_network(found, FITTED)
        return found, network.get_config()

    settings, expected = configuration({})
    read = {flag.name for flag in settings.flags_read()}
    unread = {
        name: other_value(flag)
        for name, flag in ALL.items()
        if name not in read
    }
    assert len(unread) > 10
    given = {k: v for k, v in unread.items() if v is not None and k not in line}
    assert configuration(given)[1] == expected
