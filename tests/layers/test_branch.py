import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch, SeededDropout
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.heads import PairHead
from tbnets.layers.text_encoders import MeanOfWords, RecurrentEncoder
from tbnets.layers.tree_lstm import TreeEncoder


def test_linear_branch_is_a_normalised_matrix_product():
    branch = Branch((2,), batch_normalization="none")
    branch.build((None, 2))
    kernel, bias = branch.trainable_variables
    kernel.assign([[3.0, 0.0], [0.0, 2.0]])
    bias.assign([0.0, 0.0])
    # (1, 2) -> (3, 4), of length 5.
    output = branch(tf.constant([[1.0, 2.0]]))
    np.testing.assert_allclose(output, [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    "where, names",
    [
        ("last", ["fc1", "relu1", "drop", "fc2", "bn"]),
        ("first", ["fc1", "bn", "relu1", "drop", "fc2"]),
        ("none", ["fc1", "relu1", "drop", "fc2"]),
    ],
)
def test_batch_normalization_stands_where_asked(where, names):
    branch = Branch((4, 3), batch_normalization=where)
    found = [
        "drop" if isinstance(step, SeededDropout) else step.name
        for step in branch.steps
    ]
    assert found == names


def test_two_layer_branch_equals_numpy():
    keras.utils.set_random_seed(0)
    branch = Branch((8, 2), batch_normalization="none")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    branch.build((None, 4))
    w1, b1, w2, b2 = (v.numpy() for v in branch.trainable_variables)
    hidden = np.maximum(x @ w1 + b1, 0)
    expected = hidden @ w2 + b2
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(branch(x), expected, atol=1e-6)


def test_rows_have_unit_length_and_zero_rows_a_finite_gradient():
    branch = Branch((3,), batch_normalization="none")
    x = tf.Variable([[0.0, 0.0], [1.0, -1.0]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(branch(x))
    assert np.isfinite(tape.gradient(total, x)).all()
    np.testing.assert_allclose(tf.norm(branch(x)[1]), 1.0, rtol=1e-6)


def test_output_is_float32_under_mixed_precision():
    branch = Branch((4, 3), dtype="mixed_bfloat16")
    output = branch(tf.ones((2, 5)), training=True)
    assert output.dtype == tf.float32
    assert np.isfinite(output).all()


def test_what_a_layer_is_made_of_computes_as_it_does():
    """By its own policy, not by that of whoever loads it."""
    made = [
        Branch((4, 3), "first", dtype="mixed_bfloat16", input_dropout=0.1),
        PairHead((4,), dropout=0.1, dtype="mixed_bfloat16"),
        SmallConvNet((4,), dtype="mixed_bfloat16"),
    ]
    made += [
        kind(9, 4, dtype="mixed_bfloat16")
        for kind in (MeanOfWords, TreeEncoder)
    ]
    made.append(RecurrentEncoder(9, dtype="mixed_bfloat16", bidirectional=True))
    for layer in made:
        again = type(layer).from_config(layer.get_config())
        for one in again._flatten_layers(include_self=False):
            wanted = "float32" if one.name == "logit" else "bfloat16"
            assert one.compute_dtype == wanted, (layer, one)


def test_branch_without_layers_is_l2_alone():
    branch = Branch((), "none")
    np.testing.assert_allclose(branch(tf.constant([[3.0, 4.0]])), [[0.6, 0.8]])
    assert branch.output_dim == 2 and not branch.weights


def test_dropout_keeps_the_mean_and_drops_the_rate():
    drop = SeededDropout(0.25, seed=1)
    output = drop(tf.ones((200, 100)), training=True).numpy()
    # Kept units are scaled to 1 / 0.75.
    assert set(np.round(np.unique(output), 4)) == {0.0, np.float32(1.3333)}
    assert abs((output == 0).mean() - 0.25) < 0.02


def test_dropout_is_the_identity_outside_training():
    drop = SeededDropout(0.5)
    np.testing.assert_array_equal(drop(tf.ones((2, 3))), np.ones((2, 3)))


def test_dropout_goes_on_from_restored_weights():
    drop, again = SeededDropout(0.5, seed=3), SeededDropout(0.5, seed=3)
    x = tf.ones((4, 8))
    drop.build(x.shape)
    again.build(x.shape)
    first = drop(x, training=True)
    again.set_weights(drop.get_weights())
    second = drop(x, training=True)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, again(x, training=True))


def test_dropout_streams_differ_by_seed():
    x = tf.ones((4, 32))
    one = SeededDropout(0.5, seed=1)(x, training=True)
    other = SeededDropout(0.5, seed=2)(x, training=True)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "steps, expected",
    [
        ((), [9.0, -16.0]),
        (("l2",), [9 / 337**0.5, -16 / 337**0.5]),
        (("signed_sqrt",), [3.0, -4.0]),
        (("signed_sqrt", "l2"), [0.6, -0.8]),
    ],
)
def test_feature_transform_values(steps, expected):
    output = FeatureTransform(steps)(tf.constant([[9.0, -16.0]]))
    np.testing.assert_allclose(output, [expected], rtol=1e-6)


def test_feature_transform_keeps_zero_rows_finite():
    output = FeatureTransform(("signed_sqrt", "l2"))(tf.zeros((1, 3)))
    np.testing.assert_array_equal(output, np.zeros((1, 3)))


@pytest.mark.parametrize(
    "last, expected",
    [
        # Roots are (1, 2), (3, 2): means 2 and 2, variances 1 and 0.
        ("standardize", [[-1, 0], [1, 0]]),
        # One deviation for all: sqrt((1 + 0) / 2).
        ("center", [[-(2**0.5), 0], [2**0.5, 0]]),
        # Beyond -0.25 and 0.15 deviations; what never changes is 0.
        ("ternary", [[-1, 0], [1, 0]]),
    ],
)
def test_feature_transform_takes_the_training_statistics(last, expected):
    rows = np.array([[1.0, 4.0], [9.0, 4.0]], np.float32)
    transform = FeatureTransform(("signed_sqrt", last))
    transform.build((None, 2))
    transform.adapt([rows[:1], rows[1:]])
    np.testing.assert_allclose(transform(tf.constant(rows)), expected, 1e-5)
    assert not transform.trainable_variables
    again = FeatureTransform.from_config(transform.get_config())
    again.build((None, 2))
    again.set_weights(transform.get_weights())
    np.testing.assert_array_equal(
        transform(tf.constant(rows)), again(tf.constant(rows))
    )


def test_branch_round_trips_through_its_config():
    branch = Branch((4, 3), "first", dropout=0.2, input_dropout=0.1, seed=7)
    again = Branch.from_config(branch.get_config())
    assert again.get_config() == branch.get_config()
    assert keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(branch)
    ).units == (4, 3)
