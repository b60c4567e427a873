"""Checks that all public layers, losses and models fulfil one contract.

`test_no_public_class_is_missing` fails for a new class until the class has an
entry. A layer that takes features is added to `OF_FEATURES`, and an encoder to
`OF_PIXELS`, `OF_WORDS` (word ids) or `OF_TREES`. A model is added to `MODELS`,
and a loss to `CASES` in tests/losses/cases.py.
"""

import contextlib
import functools
import importlib
import inspect
import json
import pkgutil
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
import tbnets.layers
import tbnets.losses
import tbnets.models
from tbnets.features import image_encoders
from tbnets.features.image_encoders import ApplicationEncoder, SmallConvNet
from tbnets.layers.branch import (
    Branch,
    CanonicalProjection,
    PairHead,
    SeededDropout,
)
from tbnets.layers.caption_vectors import (
    FisherVectors,
    MeanVectors,
    TfidfVectors,
)
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.sentence_encoder import SentenceEncoder
from tbnets.layers.text_encoders import (
    FeaturesAndMean,
    MeanOfWords,
    RecurrentEncoder,
)
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses import ranking
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.ranking import TERMS
from tbnets.models.cca import CCA
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.tasks.settings.learning_groups import LOSSES
from tbnets.text.packed_trees import XLA_REFUSED, TreeRows, tree_arrays
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints
from tests.features import tiny_cnn
from tests.losses import cases

VOCABULARY = Vocabulary(("", "[UNK]", "a", "red", "blue", "dog", "cat"))
SIZE = VOCABULARY.size
random = np.random.default_rng(0)

FEATURES = random.normal(size=(3, 6)).astype("float32")
PIXELS = random.uniform(0, 255, (3, 8, 8, 3)).astype("float32")
TOKEN_IDS = np.array([[2, 3, 5, 0], [1, 0, 0, 0], [6, 4, 3, 2]], np.int32)
# The bits of features, followed by word ids.
FEATURES_AND_WORDS = np.hstack([FEATURES.view(np.int32), TOKEN_IDS])
TREES = (
    "(S (NP (DT a) (NN dog)) (PP (IN on) (NP (NP (JJ red)) (NN cat))))",
    "(NN cat)",
    "(NP (JJ blue) (NN dog))",
)
TREE_ROWS = TreeRows(tree_arrays([*map(read_tree, TREES)], VOCABULARY)).batch(
    np.arange(3)
)


class Part(NamedTuple):
    """A layer or model under test: its constructor and its inputs.

    `inputs` is an array for a layer, and a dict of arrays for a model.
    """

    make: object
    inputs: object


def branches():
    return (
        Branch((5, 4), dropout=0.3, seed=1),
        Branch((5, 4), dropout=0.3, seed=2),
    )


def recurrent(cell, **arguments):
    return RecurrentEncoder(SIZE, cell, 3, 4, **arguments)


def mean_of_words():
    return MeanOfWords(SIZE, 4, word_dropout=0.2, seed=3)


def transform():
    return FeatureTransform(("signed_sqrt", "l2", "standardize"))


OF_FEATURES = {
    "canonical_projection": lambda: CanonicalProjection(4, True),
    "seeded_dropout": lambda: SeededDropout(0.4, seed=5),
    "feature_transform": transform,
    "branch": lambda: Branch((5, 4), dropout=0.3, input_dropout=0.2),
    "normalising_branch": lambda: Branch((), "none"),
    "released_branch": lambda: Branch((5, 4), batch_normalization="first"),
    "pair_head": lambda: PairHead((5, 4), dropout=0.3, scale=2),
}
OF_PIXELS = {
    "small_conv_net": lambda: SmallConvNet((2, 3)),
    "application": lambda: ApplicationEncoder(tiny_cnn.NAME, tiny_cnn.SIDE),
}
OF_WORDS = {
    "mean_of_words": mean_of_words,
    "lstm_and_mean": lambda: recurrent(
        "lstm", word_dropout=0.2, mean_beside=True
    ),
    "gru_both_ways": lambda: recurrent(
        "gru", bidirectional=True, pooling="max"
    ),
    "tfidf_vectors": lambda: TfidfVectors(SIZE, 5),
    "mean_vectors": lambda: MeanVectors(SIZE, 4),
    "sentence_encoder": lambda: SentenceEncoder(
        SIZE, 6, 1, 3, 5, 7, pooling="max", normalize=False
    ),
    "fisher_vectors": lambda: FisherVectors(SIZE, 4, 3, pca_dim=5),
}
OF_TREES = {
    "child_sum_lstm_and_mean": lambda: TreeEncoder(
        SIZE, 3, 4, tied=True, word_dropout=0.2, mean_beside=True
    ),
}
OF_BOTH = {
    "features_and_mean": lambda: FeaturesAndMean(
        SIZE, 6, embedding_dim=4, word_dropout=0.2, seed=3
    ),
}
LAYERS = {
    name: Part(make, inputs)
    for makes, inputs in (
        (OF_FEATURES, FEATURES),
        (OF_PIXELS, PIXELS),
        (OF_WORDS, TOKEN_IDS),
        (OF_TREES, TREE_ROWS),
        (OF_BOTH, FEATURES_AND_WORDS),
    )
    for name, make in makes.items()
}
TEXTS = FEATURES[::-1].copy()


def cca():
    return CCA(CanonicalProjection(4), CanonicalProjection(4), transform())


def similarity():
    head = PairHead((6, 3), dropout=0.2, seed=3)
    return SimilarityNetwork(*branches(), None, mean_of_words(), head)


def of_words():
    return EmbeddingNetwork(*branches(), text_encoder=mean_of_words())


def of_pixels():
    encoders = SmallConvNet((2, 3)), recurrent("lstm")
    return EmbeddingNetwork(*branches(), *encoders)


def hm_lstm(**of_regions):
    reader = TreeEncoder(SIZE, 3, 4)
    return HMLSTM(*branches(), text_encoder=reader, **of_regions)


def hm_lstm_of_two_kinds():
    branch = Branch((5, 4), dropout=0.3, seed=3)
    return hm_lstm(region_branch=branch, region_encoder=transform())


MODELS = {
    name: Part(make, {"images": FEATURES, "captions": captions} | more)
    for name, make, captions, more in (
        ("cca", cca, TEXTS, {}),
        ("similarity_mean", similarity, TOKEN_IDS, {}),
        ("features_mean", of_words, TOKEN_IDS, {}),
        ("pixels_lstm", of_pixels, TOKEN_IDS, {"images": PIXELS}),
        (
            "hm_lstm",
            hm_lstm_of_two_kinds,
            TREE_ROWS,
            {"regions": FEATURES[:, :5]},
        ),
        ("hm_lstm_of_one_kind", hm_lstm, TREE_ROWS, {"regions": FEATURES[:2]}),
    )
}
PARTS = LAYERS | MODELS
every_name = pytest.mark.parametrize("name", PARTS)


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with tiny_cnn.known():
        yield


def map_arrays(function, inputs):
    if isinstance(inputs, dict):
        return {key: function(array) for key, array in inputs.items()}
    return function(inputs)


def is_words(array):
    return array.dtype == np.int32


def open_shape(array):
    """Returns the shape with every size unknown that a batch may change."""
    if is_words(array):
        return (None, None, *array.shape[2:])
    return (None, *array.shape[1:])


def build(part, values_of=None):
    """Constructs and builds a part with non-trivial values in all weights."""
    keras.utils.set_random_seed(1)
    made = part.make()
    made.build(map_arrays(open_shape, part.inputs))
    fill(made) if values_of is None else copy(values_of, made)
    return made


@functools.cache
def whole(part_name):
    """Returns a built part and its outputs; see `put_back` for changes."""
    part = PARTS[part_name]
    made = build(part)
    return made, flat(made(map_arrays(tf.constant, part.inputs)))


@contextlib.contextmanager
def put_back(made):
    """Restores the weights of a part after the block."""
    before = [variable.numpy() for variable in made.weights]
    yield
    for variable, value in zip(made.weights, before, strict=True):
        variable.assign(value)


def fill(made):
    generator = np.random.default_rng(1)
    for variable in made.weights:
        value = np.asarray(variable.numpy())
        if value.ndim <= 1 and value.dtype.kind == "f":
            value = generator.uniform(0.5, 1.5, value.shape)
        variable.assign(value)


def copy(source, target):
    for one, other in zip(source.weights, target.weights, strict=True):
        other.assign(one.numpy())


def flat(structure):
    """Returns the arrays of a structure of tensors."""
    return [
        np.asarray(tf.cast(tensor, tf.float32))
        for tensor in tf.nest.flatten(structure)
    ]


def assert_close(found, wanted, rtol=1e-4, atol=1e-5):
    found, wanted = flat(found), flat(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def learning(made, training=True):
    """Returns a function of a batch: outputs, gradients and state.

    The gradient is that of the sum of squares of the outputs' difference
    from 0.3, so that unit vectors have one too.
    """

    def run(inputs):
        with tf.GradientTape() as tape:
            outputs = made(inputs, training=training)
            error = sum(
                tf.reduce_sum((tf.cast(output, tf.float32) - 0.3) ** 2)
                for output in tf.nest.flatten(outputs)
            )
        gradients = tape.gradient(error, made.trainable_variables)
        return {
            "outputs": outputs,
            "gradients": [tf.convert_to_tensor(one) for one in gradients],
            "state": [
                tf.convert_to_tensor(variable)
                for variable in made.non_trainable_weights
            ],
        }

    return run


def compiled(function, mode, inputs):
    """Compiles for batches of any number of rows and words."""
    signature = map_arrays(
        lambda array: tf.TensorSpec(open_shape(array), array.dtype), inputs
    )
    options = {"autograph": False, "jit_compile": mode == "xla"}
    return tf.function(function, input_signature=[signature], **options)


def public_classes(package):
    """Returns the names of a module's or package's own public classes."""
    modules = [package]
    for found in pkgutil.iter_modules(getattr(package, "__path__", ())):
        modules.append(
            importlib.import_module(f"{package.__name__}.{found.name}")
        )
    return {
        name
        for module in modules
        for name, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__ and not name.startswith("_")
    }


def test_no_public_class_is_missing():
    tested = {type(part.make()).__name__ for part in PARTS.values()}
    homes = tbnets.layers, tbnets.models, image_encoders
    public = set().union(*map(public_classes, homes))
    # Base classes, which lack `batch_loss` or `call`.
    bases = {"TwoBranchModel", "TextEncoder"}
    bases |= {"ConfiguredLayer", "FittedLayer", "PooledEncoder"}
    parts = {"TreeLSTM"}  # Takes two inputs; TreeEncoder contains it.
    # Not layers: a sum, a callback and a metric.
    others = {"PairSums", "FiniteSteps", "StepMean"}
    assert public - bases - parts - others == tested
    public_classes(tbnets.losses)  # Imports them all.
    losses = ranking.RankingLoss.__subclasses__()
    losses = {k for k in losses if k.__module__.startswith("tbnets.")}
    assert losses == {type(case.loss) for case in cases.CASES.values()}
    assert losses == {kind for kind, _ in LOSSES.values()}
    named = {"TwoBranchModel", "TextEncoder", *(k.__name__ for k in losses)}
    assert tested | parts | named <= {*tbnets.__all__}


@every_name
def test_saved_files_and_configs_restore_a_part(name, tmp_path):
    """A `.keras` file restores the part, and a checkpoint its weights."""
    (first, outputs), array = whole(name), PARTS[name].inputs
    inputs, model = map_arrays(tf.constant, array), first
    if not isinstance(first, keras.Model):
        model = keras.Sequential(
            [keras.Input(open_shape(array)[1:], dtype=array.dtype.name), first]
        )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(loaded(inputs), outputs, rtol=0, atol=0)
    second = loaded if model is first else loaded.layers[-1]
    assert type(second) is type(first)
    wanted, found = first.get_config(), second.get_config()
    assert json.dumps(found) == json.dumps(wanted)
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, first, None, checkpoints.RunState())
    for variable in second.weights:
        variable.assign(tf.zeros_like(variable))
    checkpoints.put_into(checkpoints.read_checkpoint(path), path, second)
    assert_close(second(inputs), outputs, rtol=0, atol=0)


def one_row(array):
    """Returns a batch of one, for words one without padding."""
    return tf.constant(array[1:2, :1] if is_words(array) else array[1:2])


# XLA compiles the LSTM. Regions without a branch of their own are embedded like
# images.
NOT_IN_GRAPHS = {"lstm_and_mean", "hm_lstm_of_one_kind"}
IN_GRAPHS = [name for name in PARTS if name not in NOT_IN_GRAPHS]


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_graph_equals_eager(name):
    """Compares outputs, and gradients and state of layers, in one trace."""
    (made, _), part = whole(name), PARTS[name]
    run = learning(made) if name in LAYERS else made
    function = compiled(run, "graph", part.inputs)
    batches = [map_arrays(cut, part.inputs) for cut in (tf.constant, one_row)]
    with put_back(made):
        wanted = [flat(run(inputs)) for inputs in batches]
    with put_back(made):
        for inputs, arrays in zip(batches, wanted):
            found = flat(function(inputs))
            assert_close(found, arrays)
            assert all(np.isfinite(array).all() for array in found)
    assert function.experimental_get_tracing_count() == 1


# Each other part does less than one of these parts, or combines layers of these
# parts. Without training, a dropout does nothing.
COMPILED_BY_XLA = {*LAYERS, "cca", "similarity_mean", "features_mean"} - {
    "seeded_dropout",
    "normalising_branch",
    "released_branch",
    "gru_both_ways",
}


@pytest.mark.parametrize("name", [n for n in PARTS if n in COMPILED_BY_XLA])
def test_xla_equals_eager(name):
    """Compares outputs, and gradients of layers.

    XLA draws other random numbers, so dropout is off. XLA compiles each batch
    size separately, so there is one size.
    """
    (made, wanted), part = whole(name), PARTS[name]
    inputs = map_arrays(tf.constant, part.inputs)
    run = made if name in MODELS else learning(made, training=False)
    function = compiled(run, "xla", part.inputs)
    if isinstance(made, TreeEncoder):
        with pytest.raises(tf.errors.InvalidArgumentError, match=XLA_REFUSED):
            function(inputs)
        return
    if name in LAYERS:
        wanted = flat(run(inputs))
    assert_close(function(inputs), wanted)


# Their outputs are features for a branch, and have the layer's compute dtype.
COMPUTE_DTYPE = {"seeded_dropout", *OF_PIXELS, *OF_WORDS, *OF_TREES, *OF_BOTH}


@every_name
def test_mixed_precision_is_finite_and_close(name):
    (exact, wanted), part = whole(name), PARTS[name]
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        mixed = build(part, values_of=exact)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert all(v.dtype != "bfloat16" for v in mixed.weights)
    # TensorFlow keeps int32 on the host, where XLA on a GPU cannot read it.
    dtypes = {tf.as_dtype(variable.dtype) for variable in mixed.variables}
    assert tf.int32 not in dtypes
    inputs = map_arrays(tf.constant, part.inputs)
    # bfloat16 keeps 8 bits of a number: 1 part in 256, a few times over.
    assert_close(mixed(inputs), wanted, 0.1, 0.1)
    found = learning(mixed)(inputs)
    assert all(np.isfinite(array).all() for array in flat(found))
    # All other outputs are embeddings or scores.
    dtype = mixed.compute_dtype if name in COMPUTE_DTYPE else "float32"
    for output in tf.nest.flatten(found["outputs"]):
        assert output.dtype == dtype


@pytest.mark.parametrize("name", LOSSES)
def test_loss_config_restores_the_loss(name):
    kind, arguments = LOSSES[name]
    if arguments.get("negatives", "top_k") != "top_k":
        arguments = arguments | {"num_negatives": None}
    loss = kind(**arguments)
    again = kind.from_config(json.loads(json.dumps(loss.get_config())))
    assert vars(again) == vars(loss)
    # A term left out has weight 0.
    weights = dict.fromkeys(TERMS, 0.0) | arguments["term_weights"]
    config = loss.get_config()
    for argument, value in (arguments | {"term_weights": weights}).items():
        assert config[argument] == value


@pytest.mark.parametrize("name", cases.CASES)
def test_loss_of_half_precision_is_float32(name):
    run = cases.with_gradients(cases.CASES[name].loss)
    images, texts, _ = cases.batch("ragged")
    ids = cases.ids_of("ragged")
    half = [tf.cast(rows, tf.bfloat16) for rows in (images, texts)]
    output, gradients = run(*half, *ids)
    assert all(x.dtype == tf.float32 for x in tf.nest.flatten(output))
    assert [x.dtype for x in gradients] == [tf.bfloat16, tf.bfloat16]
    assert all(np.isfinite(array).all() for array in flat(gradients))
    exact, _ = run(images, texts, *ids)
    np.testing.assert_allclose(output.total, exact.total, rtol=0.1)


# Without dropout, for which XLA draws random numbers of its own.
PLAIN = Part(
    lambda: EmbeddingNetwork(
        Branch((5, 4), dropout=0.0),
        Branch((4,)),
        text_encoder=MeanOfWords(SIZE, 4),
    ),
    {"images": FEATURES, "captions": TOKEN_IDS},
)


def trained(jit_compile):
    """Returns the logs and weights after two steps of one network."""
    made = build(PLAIN)
    made.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        InfoNCELoss(term_weights={"image_to_text": 1.0}),
        gradient_clip_norm=1.0,
        jit_compile=jit_compile,
        run_eagerly=not jit_compile,
    )
    ids = tf.constant([7, 8, 9], tf.int64)
    batch = map_arrays(tf.constant, PLAIN.inputs)
    batch |= {"image_ids": ids, "caption_image_ids": ids}
    history = made.fit(
        tf.data.Dataset.from_tensors(batch).repeat(2),
        verbose=0,
        shuffle=False,
    )
    return history.history, [v.numpy() for v in made.weights]


def test_whole_train_step_compiles_under_xla():
    wanted_logs, wanted = trained(jit_compile=False)
    logs, found = trained(jit_compile=True)
    assert logs.keys() == wanted_logs.keys()
    for key in logs:
        np.testing.assert_allclose(logs[key], wanted_logs[key], rtol=1e-4)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
