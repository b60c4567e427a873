"""A model of photos: the same numbers, and a fault of each broken photo."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets.data.images import decode_images
from tbnets.errors import InputError
from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import RecurrentEncoder
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Tokenizer
from tests import fresh, photo_files
from tests.data.test_images import HUGE
from tests.refusals import refused
from tests.serving.test_export import CAPTIONS, CLIENT, VOCABULARY

SIZE = 6
GOOD = [photo_files.encode(seed=seed) for seed in range(3)]
BAD = {
    b"": b"is empty",
    b"no photo": b"is neither JPEG nor PNG",
    photo_files.CONTENTS["is a gif.jpg"]: b"is neither JPEG nor PNG",
    photo_files.CONTENTS["cut.jpg"]: b"does not decode",
    photo_files.CONTENTS["cut.png"]: b"does not decode",
    photo_files.encode(size=(41, 30)): b"has more than 1200 pixels",
    HUGE["png"]: b"has more than 1200 pixels",
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Convolutions over pixels and an LSTM over words, and its SavedModel."""
    network = EmbeddingNetwork(
        Branch((4,), batch_normalization="last", dropout=0.5),
        Branch((5, 4), batch_normalization="last", dropout=0.5),
        SmallConvNet((4,)),
        RecurrentEncoder(VOCABULARY.size, "lstm", 3, 2),
    )
    shape = (SIZE, SIZE, 3)
    network.build({"images": (None, *shape), "captions": (None, None)})
    path = export_saved_model(
        network,
        VOCABULARY,
        tmp_path_factory.mktemp("photos") / "1",
        read_photos=lambda photos: decode_images(photos, SIZE),
        max_pixels=1200,
    )
    return network, path


@pytest.fixture(scope="module")
def model(exported):
    return load_saved_model(exported[1])


def test_a_fresh_process_embeds_as_the_network_does(exported, tmp_path):
    network, path = exported
    kinds = ("RGB",), ("L",), ("RGBA", "PNG"), ("P", "PNG")
    # Larger pictures of noise would become nearly grey, and rounding large.
    photos = [photo_files.encode(*kind, size=(9, 7)) for kind in kinds]
    strings = [caption.encode() for caption in CAPTIONS], photos
    np.savez(tmp_path / "in.npz", *map(np.array, strings))
    files = path, tmp_path / "in.npz", tmp_path / "out.npz"
    fresh.run("-c", CLIENT, *files, cwd=tmp_path, with_tbnets=False, check=True)
    found = np.load(tmp_path / "out.npz")
    images = network.embed_images(decode_images(photos, SIZE)).numpy()
    texts = network.embed_text(Tokenizer(VOCABULARY)(CAPTIONS)).numpy()
    for name, expected in (
        ("image", images),
        ("text", texts),
        ("attribute", texts),
        ("score", images @ texts.T),
    ):
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5)


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
    texts = {"captions": tf.constant(["a dog"])} if name == "score" else {}
    photos = tf.constant([*GOOD[:2], b"no photo", GOOD[2], b""])
    row = r"`image_bytes`.*row\] \[2"
    with pytest.raises(tf.errors.InvalidArgumentError, match=row):
        signature(image_bytes=photos, **texts)
    (rows,) = signature(image_bytes=tf.constant(GOOD), **texts).values()
    assert rows.shape[0] == 3


def test_a_wrapped_model_names_a_photo_that_is_none(model):
    cut_gif = photo_files.encode("P", "GIF")[:20]
    large = photo_files.encode(size=(41, 30))
    for bad in (photo_files.CONTENTS["cut.jpg"], cut_gif, large):
        with pytest.raises(InputError, match=r"images\[1\]"):
            model.similarity([GOOD[0], bad], ["a dog"])


def test_photos_of_all_sorts_are_embedded_alike(model, tmp_path):
    assert model.takes_photos and model.takes_captions
    assert model.metadata["max_pixels"] == 1200
    path = tmp_path / "photo"
    path.write_bytes(photo_files.encode(format="PNG"))
    picture = PIL.Image.open(path)
    bmp = photo_files.encode(format="BMP")
    photos = [bmp, picture, np.asarray(picture), str(path)]
    found = model.embed_images(photos)
    np.testing.assert_allclose(found, np.stack([found[0]] * 4), atol=1e-6)
    stack = np.stack([np.asarray(picture)] * 2)
    np.testing.assert_allclose(model.embed_images(stack), found[:2], atol=1e-6)
    with refused("images"):
        model.embed_images(picture)
    with pytest.raises(InputError, match="none.jpg"):
        model.embed_images(["none.jpg"])
    assert model.similarity([], CAPTIONS).shape == (0, 5)
