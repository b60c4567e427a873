"""One photo that is none fails no other one's answer."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.images import decode_images
from tbnets.errors import InputError
from tbnets.serving.export import export_saved_model
from tbnets.serving.inputs import attempt, attempt_once
from tbnets.serving.served import load_saved_model
from tests import photo_files
from tests.refusals import refused
from tests.serving.test_export import SIZE, make_network

GOOD = [photo_files.encode(seed=seed) for seed in range(3)]
BAD = {
    b"": b"is empty",
    b"no photo": b"is of another kind",
    photo_files.CONTENTS["is a gif.jpg"]: b"is of another kind",
    photo_files.CONTENTS["cut.jpg"]: b"does not decode",
    photo_files.CONTENTS["cut.png"]: b"does not decode",
    photo_files.encode(size=(41, 30)): b"has more than 1200 pixels",
    photo_files.encode(size=(41, 30), format="PNG"): (
        b"has more than 1200 pixels"
    ),
}


def positive(value):
    with tf.control_dependencies([tf.debugging.assert_positive(value)]):
        return 2 * value


@pytest.mark.parametrize("values", [[], [3], [-1], [-1, 2, 0, 5], [-1, -2]])
def test_where_a_function_fails_something_else_stands(values):
    call = tf.function(lambda rows: attempt(positive, (rows,), -7))
    results, succeeded = call(tf.constant(values, tf.int32))
    assert results.numpy().tolist() == [
        2 * value if value > 0 else -7 for value in values
    ]
    assert succeeded.numpy().tolist() == [value > 0 for value in values]


@pytest.mark.parametrize("value", [4, -4])
def test_a_single_call_that_fails(value):
    call = tf.function(lambda one: attempt_once(positive, (one,), -7))
    result, succeeded = call(tf.constant(value))
    assert (int(result), bool(succeeded)) == (
        (8, True) if value > 0 else (-7, False)
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    shape = (SIZE, SIZE, 3)
    path = export_saved_model(
        make_network(shape, from_captions=False),
        None,
        tmp_path_factory.mktemp("photos") / "1",
        image_shape=shape,
        read_photos=lambda photos: decode_images(photos, SIZE),
        text_dim=5,
        max_pixels=1200,
    )
    return load_saved_model(path)


def test_each_photo_has_its_own_answer(model):
    call = model.signatures["embed_image"]
    alone = call(image_bytes=tf.constant(GOOD))
    assert alone["status"].numpy().tolist() == [b""] * 3
    mixed = [GOOD[0], *BAD, GOOD[1], GOOD[2]]
    answers = call(image_bytes=tf.constant(mixed))
    status = answers["status"].numpy().tolist()
    assert status == [b"", *BAD.values(), b"", b""]
    embeddings = answers["embeddings"].numpy()
    kept = [row for row, reason in enumerate(status) if not reason]
    np.testing.assert_allclose(
        embeddings[kept], alone["embeddings"], rtol=0, atol=1e-6
    )
    assert not np.delete(embeddings, kept, axis=0).any()
    none = call(image_bytes=tf.constant(list(BAD)))
    assert not none["embeddings"].numpy().any()
    assert call(image_bytes=tf.constant([], tf.string))["status"].shape == (0,)


@pytest.mark.parametrize("name", ["embed_image_strict", "score"])
def test_a_strict_signature_names_the_first_photo_that_is_none(model, name):
    signature = model.signatures[name]
    texts = {"text_features": tf.ones([1, 5])} if name == "score" else {}
    for bad in BAD:
        photos = tf.constant([*GOOD[:2], bad, GOOD[2], bad])
        with refused("image_bytes", kind=tf.errors.InvalidArgumentError):
            signature(image_bytes=photos, **texts)
    (rows,) = signature(image_bytes=tf.constant(GOOD), **texts).values()
    assert rows.shape[0] == 3


def test_a_wrapped_model_names_a_photo_that_is_too_large_for_it(model):
    assert model.metadata["max_pixels"] == 1200
    large = photo_files.encode(size=(41, 30))
    for ask in (
        model.embed_images,
        lambda photos: model.similarity(photos, np.ones([1, 5])),
    ):
        with pytest.raises(InputError, match=r"images\[1\]"):
            ask([GOOD[0], large])


def test_a_folder_is_searched_without_what_is_no_photo(model, tmp_path, capsys):
    photo_files.write_all(tmp_path)
    [answers] = model.search(np.ones([1, 5]), tmp_path, top=99)
    found = sorted(name for name, _ in answers)
    assert found == sorted(str(tmp_path / name) for name in photo_files.PHOTOS)
    told = photo_files.reasons(capsys.readouterr().err.split("\n"), tmp_path)
    photo_files.assert_all_left_out(told)


@pytest.mark.parametrize("max_pixels", [0, -1, 80_000_001])
def test_a_limit_that_is_none_is_refused(tmp_path, max_pixels):
    with refused("max_pixels"):
        export_saved_model(
            make_network((SIZE, SIZE, 3), from_captions=False),
            None,
            tmp_path / "1",
            image_shape=(SIZE, SIZE, 3),
            read_photos=lambda photos: decode_images(photos, SIZE),
            text_dim=5,
            max_pixels=max_pixels,
        )
