"""Tests networks with the callbacks of Keras and `RetrievalMetrics`."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.data.batches import sample_epoch
from tbnets.models import fitting


def pairs(seed, count=8):
    """Returns a batch in which each caption equals its image."""
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    ids = np.arange(count)
    return {
        "images": rows.astype(np.float32),
        "captions": rows.astype(np.float32),
        "image_ids": ids,
        "caption_image_ids": ids,
    }


@pytest.fixture
def network(eagerly):
    keras.utils.set_random_seed(0)
    network = tbnets.EmbeddingNetwork(tbnets.Branch((4,)), tbnets.Branch((4,)))
    loss = tbnets.TripletLoss(term_weights={"text_to_image": 1.0})
    network.compile(keras.optimizers.SGD(1e-3), loss)
    return network


def fit(network, *callbacks, epochs):
    return network.fit(
        pairs(0),
        validation_data=pairs(1),
        batch_size=4,
        epochs=epochs,
        verbose=0,
        callbacks=list(callbacks),
    ).history


def test_callbacks_of_keras_see_val_loss_and_recall(network, tmp_path):
    callbacks = keras.callbacks
    path, best = tmp_path / "best.keras", tmp_path / "{val_recall_sum:.0f}"
    save = callbacks.ModelCheckpoint(str(path), save_best_only=True)
    recall = {"monitor": RECALL, "mode": "max"}
    keep = callbacks.ModelCheckpoint(
        f"{best}.keras", **recall, save_best_only=True
    )
    never = {"monitor": "val_loss", "min_delta": 1e9}
    lower = callbacks.ReduceLROnPlateau(**never, factor=0.1, patience=1)
    stop = callbacks.EarlyStopping(**recall, min_delta=1e9, patience=2)
    board = callbacks.TensorBoard(tmp_path / "board", write_graph=False)
    metrics = tbnets.RetrievalMetrics(pairs(1))
    watched = save, keep, lower, stop, board, metrics
    history = fit(network, *watched, epochs=9)
    assert len(history["loss"]) == len(history["val_loss"]) == 3
    assert np.isfinite(history["loss"] + history["val_loss"]).all()
    # The first epoch is the best. The next two do not improve on it.
    rate = float(np.asarray(network.optimizer.learning_rate))
    assert rate == pytest.approx(1e-5)
    assert history["learning_rate"][-1] < history["learning_rate"][0]
    loaded = tbnets.load_model(path)
    assert loaded.embed_images(pairs(1)["images"]).shape == (8, 4)
    assert (tmp_path / f"{max(history[RECALL]):.0f}.keras").exists()
    [events] = (tmp_path / "board" / "validation").glob("events*")
    assert b"epoch_recall_sum" in events.read_bytes()


RECALL = "val_recall_sum"


def reader(seen):
    """Returns a callback that appends each epoch's logs to `seen`."""
    return keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(dict(logs))
    )


def test_recalls_equal_evaluate_retrieval(network):
    seen, data = [], pairs(1)
    # `fit` calls it first, although it is the last callback.
    watch = tbnets.RetrievalMetrics(data)
    history = fit(network, reader(seen), watch, epochs=1)
    wanted = tbnets.evaluate_retrieval(
        network.embed_images(data["images"]),
        network.embed_text(data["captions"]),
        data["image_ids"],
    )
    names = [f"{way}/recall_at_{k}" for way in WAYS for k in (1, 5, 10)]
    for name in ("recall_sum", "mean_recall", *names):
        assert seen[0][f"val_{name}"] == wanted[name]
        assert history[f"val_{name}"] == [wanted[name]]
    assert not [name for name in history if "text_to_text/" in name]


WAYS = ("image_to_text", "text_to_image")


def repeated(data):
    """Repeats each row, so that each image has two captions."""
    rows = np.repeat(np.arange(8), 2)
    return {name: array[rows] for name, array in data.items()}


def as_examples(data):
    ids = data["caption_image_ids"]
    return tbnets.Examples.from_arrays(data["images"], data["captions"], ids)


def as_batches(data, captions=1):
    return tbnets.EpochBatches(as_examples(data), 4, captions, seed=0)


def as_dataset(data):
    return tf.data.Dataset.from_tensor_slices(data).batch(3)


class Loader(list):
    """A user's list of batches, with attributes like `EpochBatches`."""

    dataset = examples = records = image_size = ()


def as_loader(data):
    return Loader(as_dataset(data))


def measured(network, form):
    """Returns the logs of `RetrievalMetrics` after an epoch."""
    metrics, logs = tbnets.RetrievalMetrics(form), {}
    metrics.set_model(network)
    metrics.on_epoch_end(0, logs)
    return logs


FORMS = [as_examples, as_batches, as_dataset, as_loader]


@pytest.mark.parametrize("make", FORMS)
def test_all_kinds_of_data_give_the_same_recalls(network, make):
    forms = pairs(1), make(pairs(1))
    logs = [measured(network, form) for form in forms]
    assert logs[0] == logs[1] and RECALL in logs[0]


def test_a_callback_list_is_unpacked():
    last, metrics = reader([]), tbnets.RetrievalMetrics(pairs(1))
    arguments = {"callbacks": keras.callbacks.CallbackList([last, metrics])}
    fitting.prepare_arguments(arguments, None, tf.distribute.get_strategy())
    assert arguments["callbacks"][-2:] == [metrics, last]


def test_an_image_listed_twice_is_one_candidate(network):
    data = repeated(pairs(1))
    logs = [measured(network, form) for form in (data, as_dataset(data))]
    wanted = tbnets.evaluate_retrieval(
        network.embed_images(pairs(1)["images"]),
        network.embed_text(data["captions"]),
        data["caption_image_ids"],
    )
    assert logs[0] == logs[1]
    assert logs[0][RECALL] == wanted["recall_sum"]


def test_images_of_one_identity_match_each_others_captions(network):
    examples = as_examples(pairs(1))
    identities = [str(row // 4) for row in range(8)]
    records = dataclasses.replace(examples.records, identities=identities)
    logs = measured(network, dataclasses.replace(examples, records=records))
    owners = np.repeat(np.arange(2), 4)
    wanted = tbnets.evaluate_retrieval(
        network.embed_images(pairs(1)["images"]),
        network.embed_text(pairs(1)["captions"]),
        positives=np.equal.outer(owners, owners),
    )
    assert logs[RECALL] == wanted["recall_sum"]


def test_recalls_of_a_similarity_network_use_its_head():
    branches = tbnets.Branch((4,)), tbnets.Branch((4,))
    network = tbnets.SimilarityNetwork(*branches, head=tbnets.PairHead((3,)))
    network.build({"images": (None, 6), "captions": (None, 6)})
    logs = measured(network, pairs(1))
    images, texts = network.embed(pairs(1))
    scores = np.asarray(network.similarities(images, texts))
    ranks = (scores >= np.diag(scores)[:, None]).sum(axis=1)
    assert logs["val_image_to_text/recall_at_1"] == np.mean(ranks <= 1)


class Drawn(tbnets.EpochBatches):
    """Records the epoch and the image rows of each batch."""

    def batch(self, image_rows, *others):
        self.seen = [*getattr(self, "seen", []), (self.epoch, *image_rows)]
        return super().batch(image_rows, *others)


def test_fit_sets_the_epoch_of_epoch_batches(network, recwarn):
    batches = Drawn(as_examples(pairs(0)), 4, 1, seed=0)
    network.fit(
        batches,
        validation_data=as_batches(pairs(1)),
        steps_per_epoch=2,
        epochs=2,
        verbose=0,
    )
    assert not [one for one in recwarn if "ran out" in str(one.message)]
    wanted = [
        (epoch, *image_rows)
        for epoch in range(2)
        for image_rows, _ in sample_epoch(
            batches.examples.records, 4, 1, seed=0, epoch=epoch
        )
    ]
    assert [row for row in wanted if row not in batches.seen] == []
    assert {epoch for epoch, *_ in batches.seen} == {0, 1}
