import keras
import numpy as np
import pytest

from tbnets.layers.word_table import WordTable

FIRST = np.arange(6, dtype="float32").reshape(3, 2)


def make(training, weight=0.0):
    table = WordTable(3, 2, training, weight)
    table.build((None, None))
    table.take(FIRST)
    return table


@pytest.mark.parametrize("training", ["trained", "frozen", "regularized"])
def test_vectors_are_those_that_were_given(training):
    table = make(training)
    found = table(np.array([[2, 0]], np.int32))
    np.testing.assert_array_equal(found, [[[4, 5], [0, 1]]])
    assert len(table.trainable_variables) == (training != "frozen")
    assert len(table.weights) == 1 + (training == "regularized")


def test_the_penalty_is_the_squared_distance():
    table = make("regularized", 0.5)
    assert [float(loss) for loss in table.losses] == [0.0]
    table.embeddings.assign(FIRST + [[1, 0], [0, 0], [0, 3]])
    # Half of 1 + 9.
    assert [float(loss) for loss in table.losses] == [5.0]
    assert not make("trained", 0.5).losses


def test_config_round_trip():
    table = make("regularized", 0.5)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(table)
    )
    if not again.built:
        again.build((None, None))
    assert (again.training, again.weight) == ("regularized", 0.5)


def test_unknown_training():
    with pytest.raises(ValueError, match="trained, regularized, frozen"):
        WordTable(3, 2, "often")
