"""What comes into a served graph is checked, in any runtime."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving.inputs import MOST_WORDS, bounded
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Tokenizer
from tests import fresh
from tests.refusals import refused
from tests.serving.test_export import VOCABULARY, write_features_model

# What clients of a server send, which checks no shapes itself: a callable of
# a session feeds placeholders as the C++ runtime does.
CLIENT = """
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import config_pb2

good = np.array([b"a dog"])
bad = [np.array(b"a dog"), np.array([[b"a", b"dog"]]), np.zeros([1, 0, 1], "S")]
loaded = tf.saved_model.load(sys.argv[1]).signatures["embed_text"]


def by_function(captions):
    given = tf.constant(captions.tolist(), tf.string, captions.shape)
    return loaded(captions=given)["embeddings"].numpy()


session = tf.compat.v1.Session(graph=tf.Graph())
with session.graph.as_default():
    graph = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
signature = graph.signature_def["embed_text"]
by_session = session._make_callable_from_options(
    config_pb2.CallableOptions(
        feed=[signature.inputs["captions"].name],
        fetch=[signature.outputs["embeddings"].name],
    )
)
for call in (by_function, lambda captions: by_session(captions)[0]):
    wanted = call(good)
    for captions in bad:
        try:
            call(captions)
        except tf.errors.InvalidArgumentError:
            print("refused", captions.ndim)
        np.testing.assert_array_equal(call(good), wanted)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_features_model(tmp_path_factory.mktemp("doors") / "1")


def test_captions_of_another_rank_are_refused_and_the_next_is_answered(path):
    # A scalar would end the process in the op that cuts words.
    ended = fresh.run("-c", CLIENT, path, with_tbnets=False, check=True)
    assert ended.stdout.split("\n")[:6] == [
        f"refused {rank}" for rank in (0, 2, 3, 0, 2, 3)
    ]


@pytest.fixture(scope="module")
def served(path):
    return load_saved_model(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_features_that_are_no_numbers_are_refused_by_their_row(served, number):
    signature = served.signatures["embed_image"]
    features = np.ones([4, 5], np.float32)
    features[2, 3] = number
    with refused("image_features", kind=tf.errors.InvalidArgumentError):
        signature(image_features=tf.constant(features))
    assert signature(image_features=tf.ones([0, 5]))["embeddings"].shape[0] == 0


def test_long_captions_are_cut(served):
    assert served.metadata["max_tokens"] == MOST_WORDS == 200
    longest = "a " * 199 + "dog"
    cut, same, other = served.embed_text([f"{longest} snow", longest, "a dog"])
    np.testing.assert_allclose(cut, same, rtol=0, atol=1e-6)
    assert np.abs(same - other).max() > 1e-3
    longer = Tokenizer(VOCABULARY, 201)
    assert bounded(longer) is longer
    assert bounded(Tokenizer(VOCABULARY)).max_tokens == 200
    assert bounded(None) is None
