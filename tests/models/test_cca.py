"""Compares CCA with the textbook's SVD, on small random data."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets


def correlated(num_images=40, per_image=3, sizes=(5, 4), seed=0):
    """Returns a batch in which images and texts share two dimensions."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(num_images, 2))
    owners = np.repeat(np.arange(num_images), per_image)
    rows = []
    for size, of in zip(sizes, (np.arange(num_images), owners)):
        mixed = hidden[of] @ generator.normal(size=(2, size))
        noise = generator.normal(size=(len(of), size))
        scales = generator.uniform(0.5, 2, size)
        rows.append((mixed + noise) * scales + 10 * generator.normal(size=size))
    return {
        "images": rows[0].astype("float32"),
        "captions": rows[1].astype("float32"),
        "image_ids": np.arange(num_images) + 7,
        "caption_image_ids": owners + 7,
    }


def split(batch, sizes):
    """Yields parts of the batch: `sizes` images and their captions."""
    start = 0
    for size in sizes:
        images = slice(start, start + size)
        ids = batch["image_ids"][images]
        texts = np.isin(batch["caption_image_ids"], ids)
        yield {
            "images": batch["images"][images],
            "captions": batch["captions"][texts],
            "image_ids": ids,
            "caption_image_ids": batch["caption_image_ids"][texts],
        }
        start += size


def fitted(batches, dim=2, run_eagerly=True, **arguments):
    network = tbnets.CCA(
        tbnets.CanonicalProjection(dim),
        tbnets.CanonicalProjection(dim, "background" in arguments),
        **arguments,
    )
    network.compile(run_eagerly=run_eagerly)
    batches = list(batches)
    spec = {
        key: tf.TensorSpec((None, *value.shape[1:]), value.dtype)
        for key, value in batches[0].items()
    }
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=spec
    )
    history = network.fit(
        dataset, steps_per_epoch=len(batches), shuffle=False, verbose=0
    )
    return network, history.history


def pairs_of(batch):
    """Returns the images and the texts of all matching pairs."""
    rows = [
        (image, text)
        for image, image_id in zip(batch["images"], batch["image_ids"])
        for text, owner in zip(batch["captions"], batch["caption_image_ids"])
        if image_id == owner
    ]
    return [np.array(side, np.float64) for side in zip(*rows)]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_cca(images, texts, ridges):
    """Returns the directions of both sides by SVD, and correlations.

    The directions have variance 1 under the covariances with their ridges.
    """
    images, texts = (side - side.mean(axis=0) for side in (images, texts))
    factors = [
        np.linalg.cholesky(np.cov(side.T, bias=True) + np.diag(ridge))
        for side, ridge in zip((images, texts), ridges)
    ]
    inverse = [np.linalg.inv(factor) for factor in factors]
    between = images.T @ texts / len(images)
    left, correlations, right = np.linalg.svd(
        inverse[0] @ between @ inverse[1].T
    )
    return inverse[0].T @ left, inverse[1].T @ right.T, correlations


@pytest.mark.parametrize(
    "sizes, regularization", [((5, 4), 0.1), ((4, 6), 0.0)]
)
def test_cca_finds_the_directions_of_the_textbook(sizes, regularization):
    batch = correlated(sizes=sizes)
    network, history = fitted(
        split(batch, (17, 20, 3)), regularization=regularization, power=4.0
    )
    pairs = pairs_of(batch)
    ridges = [
        np.full(side.shape[1], regularization * side.var(axis=0).mean())
        for side in pairs
    ]
    *directions, values = plain_cca(*pairs, ridges)
    np.testing.assert_allclose(network.correlations, values[:2], atol=1e-5)
    assert history["loss"] == pytest.approx([1 - values[:2].mean()], 1e-4)
    weights = (1 + values[:2]) ** 4
    images, texts = (
        unit((batch[name] - side.mean(axis=0)) @ direction[:, :2] * weights)
        for name, side, direction in zip(batch, pairs, directions)
    )
    found = network(batch)
    # The sign of a direction is arbitrary, but equal on both sides.
    np.testing.assert_allclose(
        found["image_embeddings"] @ tf.transpose(found["text_embeddings"]),
        images @ texts.T,
        atol=1e-4,
    )


def shuffled(batch):
    """Shuffles the captions, and adds a caption of an unknown image."""
    order = np.random.default_rng(1).permutation(len(batch["captions"]))
    captions = np.vstack([batch["captions"][order], [[9e3] * 4]])
    owners = np.append(batch["caption_image_ids"][order], 1)
    captions = captions.astype("float32")
    return batch | {"captions": captions, "caption_image_ids": owners}


def test_cca_ignores_the_order_and_captions_without_image():
    batch = correlated()
    one, _ = fitted([batch])
    other, _ = fitted([shuffled(batch)], run_eagerly=False)
    for first, second in zip(one(batch).values(), other(batch).values()):
        np.testing.assert_allclose(first, second, atol=1e-4)


def test_fewer_rows_than_features_need_regularization():
    batch = correlated(num_images=4, per_image=1, sizes=(9, 8))
    network, _ = fitted([batch])
    found = network(batch)
    assert np.isfinite(found["image_embeddings"]).all()
    # Four pairs minus their mean determine at most three directions.
    assert np.linalg.matrix_rank(network.image_branch.projection.numpy()) == 2


def candidates(count, size=5, seed=3):
    """Returns regions whose distribution differs from `correlated`."""
    rows = np.random.default_rng(seed).normal(size=(count, size))
    return (2 * rows + np.arange(size)).astype("float32")


def stacked_rows(images, texts, others, copies):
    """Stacks pairs and background; returns the images and the texts."""
    others = np.repeat(others, copies, axis=0)
    words = np.column_stack([texts - texts.mean(axis=0), np.ones(len(texts))])
    nothing = np.zeros((len(others), words.shape[1]))
    return np.vstack([images, others]), np.vstack([words, nothing])


@pytest.mark.parametrize("regularization, copies", [(0.0, 3), (0.1, 1)])
def test_background_is_rows_without_words(regularization, copies):
    batch, others = correlated(), candidates(30)
    parts = list(split(batch, (17, 20, 3)))
    for part, rows in zip(parts, (others[:0], others[:11], others[11:])):
        part["candidates"] = rows
    images, texts = pairs_of(batch)
    rows, words = stacked_rows(images, texts, others, copies)
    share = len(images) / len(rows)
    network, _ = fitted(
        parts,
        regularization=regularization,
        power=4.0,
        background=(len(rows) - len(images)) / len(images),
    )

    # The indicator of pairs has no noise, so only words get a ridge.
    ridges = [
        np.full(5, regularization * rows.var(axis=0).mean()),
        np.append(
            np.full(4, regularization * share * texts.var(axis=0).mean()), 0
        ),
    ]
    image, text, correlations = plain_cca(rows, words, ridges)
    np.testing.assert_allclose(
        network.correlations, correlations[:2], atol=1e-6
    )
    weights = (1 + correlations[:2]) ** 4
    said = np.column_stack([texts - texts.mean(axis=0), np.ones(len(texts))])
    expected = [
        unit((rows - rows.mean(axis=0)) @ image[:, :2] * weights),
        unit((said - words.mean(axis=0)) @ text[:, :2] * weights),
    ]
    found = network.embed_images(rows), network.embed_text(texts)
    np.testing.assert_allclose(
        found[0] @ tf.transpose(found[1]),
        expected[0] @ expected[1].T,
        atol=1e-5,
    )


def unfitted():
    network = tbnets.CCA(*(tbnets.CanonicalProjection(2) for _ in range(2)))
    network.compile(run_eagerly=True)
    return network


def test_callbacks_see_the_solved_weights(tmp_path):
    batch, network = correlated(), unfitted()
    path = str(tmp_path / "kept.keras")
    watch = tbnets.RetrievalMetrics([batch])
    callbacks = [keras.callbacks.ModelCheckpoint(path), watch]
    data = tf.data.Dataset.from_tensors(batch)
    told = network.fit(
        data, epochs=2, callbacks=callbacks, shuffle=False, verbose=0
    ).history
    images = network.embed_images(batch["images"])
    kept = tbnets.load_model(path).embed_images(batch["images"])
    np.testing.assert_array_equal(kept, images)
    texts = network.embed_text(batch["captions"])
    owners = batch["caption_image_ids"] - 7
    wanted = tbnets.evaluate_retrieval(images, texts, owners)
    assert told["val_recall_sum"][-1] == wanted["recall_sum"]


def test_cca_is_solved_if_a_callback_stops_training():
    batch, ends = correlated(), keras.callbacks.EarlyStopping("loss", 0, 1)
    network, data = unfitted(), tf.data.Dataset.from_tensors(batch)
    network.fit(data, epochs=9, callbacks=[ends], shuffle=False, verbose=0)
    wanted, _ = fitted([batch])
    np.testing.assert_allclose(network.correlations, wanted.correlations)
