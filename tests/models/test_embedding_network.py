import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.batches import EpochBatches, Examples
from tbnets.errors import InputError
from tbnets.layers.branch import Branch, SeededDropout
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.text_encoders import MeanOfWords
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tbnets.models import two_branch
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.retrieval_metrics import RetrievalMetrics

SHAPES = {"images": (None, 6), "captions": (None, None)}


def make(**branch):
    keras.utils.set_random_seed(0)
    branch = {"dropout": 0.2, **branch}
    network = EmbeddingNetwork(
        Branch((8, 4), seed=1, **branch),
        Branch((8, 4), seed=2, **branch),
        image_encoder=FeatureTransform(("l2",)),
        text_encoder=MeanOfWords(9, 5),
    )
    network.build(SHAPES)
    return network


def make_batch(num_images=5, captions=(2, 1, 0, 3, 1), words=4, seed=0):
    generator = np.random.default_rng(seed)
    owners = np.repeat(np.arange(num_images), captions[:num_images])
    ids = generator.integers(1, 9, (len(owners), words))
    return {
        "images": tf.constant(
            generator.normal(size=(num_images, 6)), tf.float32
        ),
        "captions": tf.constant(ids, tf.int32),
        "image_ids": tf.range(num_images, dtype=tf.int64) + 1000092795,
        "caption_image_ids": tf.constant(owners, tf.int64) + 1000092795,
    }


def compiled_network(optimizer="sgd"):
    network = make()
    network.compile(optimizer, TripletLoss(margin=0.5, num_negatives=2))
    return network


ONE_TERM = TripletLoss(margin=0.5, term_weights={"text_to_image": 1})


def test_fit_reports_every_term_and_the_rate_in_use(eagerly):
    schedule = keras.optimizers.schedules.ExponentialDecay(
        1.0, 1, 0.5, staircase=True
    )
    network = compiled_network(keras.optimizers.SGD(schedule))
    history = network.fit(
        tf.data.Dataset.from_tensors(make_batch()).repeat(3),
        verbose=0,
        shuffle=False,
    ).history
    terms = ("image_to_text", "text_to_image", "text_to_text")
    assert set(history) == {
        "loss",
        "gradient_norm",
        "learning_rate",
        *(f"{term}_{kind}" for term in terms for kind in ("loss", "active")),
    }
    # The mean of the rates of steps 0, 1 and 2: 1, 1/2 and 1/4.
    assert history["learning_rate"][0] == pytest.approx(1.75 / 3)


def mean_similarity(network, batch):
    images, texts = network.embed(batch)
    return tf.reduce_mean(network.similarities(images, texts))


def test_own_metrics_are_averaged_over_the_steps(eagerly):
    network, batches = make(dropout=0.0), [make_batch(), make_batch(seed=1)]
    metrics = {"similarity": mean_similarity}
    network.compile(keras.optimizers.SGD(0.0), ONE_TERM, metrics=metrics)
    wanted = np.mean([mean_similarity(network, each) for each in batches])
    stacked = tf.nest.map_structure(lambda *rows: tf.stack(rows), *batches)
    data = tf.data.Dataset.from_tensor_slices(stacked)
    found = network.evaluate(data, verbose=0, return_dict=True)
    np.testing.assert_allclose(found["similarity"], wanted, rtol=1e-5)
    logs = network.fit(data, validation_data=data, verbose=0).history
    assert {"similarity", "val_similarity"} < set(logs)
    assert not network.get_compile_config()["metrics"]


@pytest.mark.parametrize("size, shift", [(1, 0), (5, 100)])
def test_fit_warns_if_no_batch_has_a_positive_and_a_negative(
    size, shift, eagerly
):
    batch = arrays_of(make_batch(captions=(1,) * 5))
    batch["caption_image_ids"] = batch["caption_image_ids"] + shift
    with pytest.warns(UserWarning, match="caption_image_ids"):
        compiled_network().fit(batch, batch_size=size, verbose=0)


def scaled(rate):
    wrap = keras.mixed_precision.LossScaleOptimizer
    return wrap(keras.optimizers.SGD(rate))


def taken_step(optimizer, limit=None):
    """Returns the changes of the weights, the loss and the norm of a step."""
    network = make(dropout=0.0)
    network.compile(optimizer, ONE_TERM, gradient_clip_norm=limit)
    network.optimizer.build(network.trainable_variables)
    before = [v.numpy() for v in network.trainable_variables]
    told = network.train_step(make_batch())
    changes = [
        v.numpy() - old for v, old in zip(network.trainable_variables, before)
    ]
    return changes, told["loss"], told["gradient_norm"]


def test_gradient_is_clipped_to_the_norm_of_a_scaled_loss_too():
    plain, loss, norm = taken_step(keras.optimizers.SGD(1.0))
    # A word that occurs in several captions has the sum of their gradients.
    squares = sum(float((change**2).sum()) for change in plain)
    np.testing.assert_allclose(norm, squares**0.5, rtol=1e-6)
    assert norm > 0.01
    optimizers = [keras.optimizers.SGD]
    if not two_branch.KERAS_2:  # Keras 2 does not scale gradients.
        optimizers.append(scaled)
    for optimizer in optimizers:
        changes, *told = taken_step(optimizer(1.0), limit=0.01)
        np.testing.assert_allclose(told, (loss, norm), rtol=1e-5)
        for found, change in zip(changes, plain, strict=True):
            wanted = change * 0.01 / norm
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-7)


def test_train_on_batch_takes_the_step_of_fit(eagerly):
    batch, found = arrays_of(make_batch(captions=(1,) * 5)), []
    for by_itself in (False, True):
        network = make(dropout=0.0)
        network.compile(keras.optimizers.SGD(1.0), ONE_TERM)
        if by_itself:
            network.train_on_batch(batch)
        else:
            network.fit(batch, batch_size=5, shuffle=False, verbose=0)
        loss = network.test_on_batch(batch, return_dict=True)["loss"]
        found.append([float(loss), *network.get_weights()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(two_branch.KERAS_2, reason="Keras 2 scales no gradients")
def test_a_step_that_overflows_is_skipped_and_has_norm_zero():
    network = make(dropout=0.0)
    network.compile(scaled(1.0), ONE_TERM)
    network.optimizer.build(network.trainable_variables)
    network.optimizer.dynamic_scale.assign(3e38)
    before = [v.numpy() for v in network.trainable_variables]
    assert float(network.train_step(make_batch())["gradient_norm"]) == 0.0
    for variable, old in zip(network.trainable_variables, before):
        np.testing.assert_array_equal(variable.numpy(), old)
    assert float(network.optimizer.dynamic_scale) < 2e38  # Halved.


def test_batches_of_all_sizes_share_one_trace_and_lower_the_loss():
    network = make(dropout=0.0, batch_normalization="none")
    traces = []
    step = network.train_step

    def counted(batch):
        traces.append(1)
        return step(batch)

    network.train_step = counted
    network.compile(keras.optimizers.Adam(0.01), ONE_TERM)
    batches = [make_batch(5), make_batch(3, words=7), make_batch(1)]
    batches.append(make_batch(3, (1, 0, 0)))
    before = [float(network.batch_loss(batch).total) for batch in batches]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches * 20),
        output_signature={
            "images": tf.TensorSpec((None, 6)),
            "captions": tf.TensorSpec((None, None), tf.int32),
            "image_ids": tf.TensorSpec((None,), tf.int64),
            "caption_image_ids": tf.TensorSpec((None,), tf.int64),
        },
    )
    network.fit(dataset, verbose=0, shuffle=False)
    assert len(traces) == 1
    assert network.largest_batch is None
    after = [float(network.batch_loss(batch).total) for batch in batches]
    assert sum(after) < 0.7 * sum(before) and np.isfinite(after).all()


class Poisoned(InfoNCELoss):
    """A loss whose terms within a view are NaN."""

    def sums(self, *arguments):
        sums = super().sums(*arguments)
        return {
            term: row * np.nan if term in WITHIN else row
            for term, row in sums.items()
        }


ACROSS = {"image_to_text": 1, "text_to_image": 1}
WITHIN = ("text_to_text", "image_to_image")


def branches_and_loss(loss, **steps):
    """Returns a network that compiles fast: its branches have one layer."""
    keras.utils.set_random_seed(0)
    branches = [Branch((4,), "none") for _ in range(2)]
    network = EmbeddingNetwork(*branches, text_encoder=MeanOfWords(9, 5))
    network.build(SHAPES)
    network.compile("sgd", loss, **steps)
    return network


def losses_and_gradients(network):
    """Returns a function that maps a batch to its loss and gradients."""

    def run(batch):
        with tf.GradientTape() as tape:
            output = network.batch_loss(batch, training=True)
        weights = network.image_branch.trainable_weights
        return output, tape.gradient(output.total, weights)

    return run


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_an_idle_term_is_not_computed(mode):
    terms = ACROSS | dict.fromkeys(WITHIN, 0.1)
    if mode == "xla":  # One term of each kind compiles faster.
        del terms["image_to_text"], terms["image_to_image"]
    steps = {"structure_steps": 1, "structure_end": 3}
    broken = branches_and_loss(Poisoned(term_weights=terms), **steps)
    run = losses_and_gradients(broken)
    if mode == "xla":
        run = tf.function(run, autograph=False, jit_compile=True)
    alone = {term: 1 for term in ACROSS if term in terms}
    batch = make_batch()
    alone = branches_and_loss(InfoNCELoss(term_weights=alone))
    wanted, wanted_gradients = losses_and_gradients(alone)(batch)
    for step in range(4):
        broken.optimizer.iterations.assign(step)
        output, gradients = run(batch)
        if step in (1, 2):
            assert np.isnan(output.total)
            continue
        tolerance = 0 if mode == "eager" else 1e-5
        np.testing.assert_allclose(output.total, wanted.total, tolerance)
        within = [term for term in WITHIN if term in terms]
        assert {float(output.terms[term]) for term in within} == {0.0}
        for found, expected in zip(gradients, wanted_gradients, strict=True):
            np.testing.assert_allclose(found, expected, tolerance, tolerance)


def arrays_of(batch):
    return {key: value.numpy() for key, value in batch.items()}


def test_fit_stops_after_an_epoch_with_a_loss_that_is_not_finite(eagerly):
    batch, epochs = arrays_of(make_batch()), []
    data = tf.data.Dataset.from_generator(
        lambda: [batch],
        output_signature={
            key: tf.TensorSpec(value.shape, value.dtype)
            for key, value in batch.items()
        },
    )

    def spoil(epoch, logs):
        epochs.append(epoch)
        batch["images"][1, 4] = np.nan

    ends = keras.callbacks.LambdaCallback(on_epoch_end=spoil)
    options = {"verbose": 0, "callbacks": ends, "shuffle": False}
    # The loss may be finite, because ReLU of NaN is 0 in some kernels.
    with pytest.raises(InputError, match="epoch 2") as caught:
        compiled_network().fit(data, epochs=3, **options)
    assert caught.value.argument == "x" and epochs == [0]


def test_error_names_the_row_that_is_not_finite(eagerly):
    """Checks the inputs, because a kernel may turn a NaN into 0."""
    good = arrays_of(make_batch(3, (1, 1, 1)))
    bad = {**good, "images": good["images"].copy()}
    bad["images"][2, 4] = np.nan
    network = compiled_network()
    before = network.get_weights()
    quiet, watch = {"verbose": 0}, RetrievalMetrics([bad])
    with pytest.raises(InputError, match="row 2"):
        network.fit(bad, **quiet)
    for weight, old in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    for argument, ask in (
        ("x['images']", lambda: network.evaluate(bad, **quiet)),
        ("x['images']", lambda: network.predict(x=bad, **quiet)),
        (
            "validation_data['images']",
            lambda: network.fit(good, validation_data=(bad, None), **quiet),
        ),
        ("images", lambda: network.fit(good, callbacks=watch, **quiet)),
    ):
        with pytest.raises(InputError, match="row 2") as caught:
            ask()
        assert caught.value.argument == argument
    assert network.evaluate(good, verbose=0, return_dict=True)["loss"] >= 0


def test_evaluate_reads_all_epoch_batches(eagerly):
    rows = np.random.default_rng(0).normal(size=(6, 6)).astype("float32")
    words = np.arange(1, 7)[:, None]
    examples = Examples.from_arrays(rows, words, np.arange(6))
    batches = EpochBatches(examples, 3, 1, seed=0)
    network = compiled_network()
    told = network.evaluate(batches, verbose=0, return_dict=True)
    losses = [network.batch_loss(batch).total for batch in batches.dataset]
    assert told["loss"] == pytest.approx(np.mean(losses))
    assert len(network.predict(batches, verbose=0)["text_embeddings"]) == 6
    with pytest.raises(InputError, match="`steps_per_epoch`"):
        network.fit(batches, steps_per_epoch=1, epochs=2, verbose=0)
    assert network.largest_batch == (3, 3)


def test_image_and_text_branch_draw_different_dropout_masks():
    """Otherwise, a network would recognise pairs by their masks."""
    ones, units = tf.ones((16, 8)), (8, 8, 4)
    options = {"dropout": 0.5, "input_dropout": 0.5}
    branches = [Branch(units, **options), Branch(units, **options)]
    network = EmbeddingNetwork(*branches)
    drops = [
        [step(ones, training=True) for step in branch.steps if _drops(step)]
        for branch in branches
    ]
    assert len(drops[0]) == 3
    for one, other in zip(*drops):
        assert np.mean(one.numpy() == other.numpy()) < 0.7  # 0.5 by chance.
    other = EmbeddingNetwork.from_config(network.get_config())
    for step, same in zip(branches[1].steps, other.text_branch.steps):
        if _drops(step):
            same.draws.assign(0) if same.built else same.build((16, 8))
            step.draws.assign(0)
            again = same(ones, training=True)
            np.testing.assert_array_equal(step(ones, training=True), again)
    drawn = Branch(units, seed=7, **options)
    EmbeddingNetwork(branches[0], drawn)
    assert [s.stream for s in drawn.steps if _drops(s)] == [7, 8, 9]


def _drops(step):
    return isinstance(step, SeededDropout)
