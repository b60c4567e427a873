"""The text side of a preset as a layer."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.extras.hub import presets
from tbnets.extras.hub.texts import HubTextEncoder, HubTokenizer

CAPTIONS = ["a dog runs", "", "the red ball in ✓"]


@pytest.fixture(scope="module", params=["clip", "siglip", "bert"])
def preset(hub_presets, request):
    return presets.open_preset(hub_presets[request.param], "text")


@pytest.fixture(scope="module")
def ids(preset):
    return HubTokenizer(preset)(CAPTIONS)


@pytest.fixture(scope="module")
def layer(preset):
    return HubTextEncoder.of(preset)


def test_its_config_builds_it_again_without_files(preset, layer, ids):
    config = json.loads(json.dumps(layer.get_config()))
    assert preset.name not in json.dumps(config)
    again = HubTextEncoder.from_config(config)
    assert again.output_dim == layer.output_dim == layer(ids).shape[1]
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(ids), layer(ids))


def test_it_learns_the_same_way_each_time(layer, ids):
    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True) ** 2)
        return [
            tf.convert_to_tensor(one)
            for one in tape.gradient(loss, layer.trainable_variables)
            if one is not None
        ]

    first, second = gradients(), gradients()
    assert sum(float(tf.reduce_sum(abs(one))) for one in first) > 0
    for one, other in zip(first, second):
        np.testing.assert_array_equal(one, other)


def test_it_computes_by_its_policy(preset, layer, ids):
    before = keras.mixed_precision.global_policy()
    mixed = HubTextEncoder.of(preset, dtype="mixed_bfloat16")
    assert keras.mixed_precision.global_policy() == before
    found = mixed(ids)
    assert found.dtype == "bfloat16"
    np.testing.assert_allclose(
        tf.cast(found, "float32"), layer(ids), atol=0.05, rtol=0.05
    )
