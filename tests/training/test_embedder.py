import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets.data.batches import Examples, FileNames
from tbnets.data.captions import CaptionedImages
from tbnets.errors import InputError
from tbnets.tasks import runs
from tbnets.training import loop, retrieval_metrics
from tbnets.training.retrieval_metrics import Embedder
from tests import photo_files, tiny

SIZE = 8
COLORS = [(200, 0, 0), (0, 150, 0), (0, 0, 100), (30, 60, 90), (9, 9, 9)]


class Network:
    """Returns embeddings that identify their rows."""

    def __init__(self):
        self.widths = []
        self.traces = 0

    def embed_images(self, images, training):
        assert training is False
        if images.shape.rank == 4:
            return tf.reduce_mean(images, axis=[1, 2])
        return images

    def embed_text(self, captions, training):
        assert training is False
        self.traces += 1
        tf.py_function(
            lambda width: self.widths.append(int(width)),
            [tf.shape(captions)[1]],
            [],
        )
        total = tf.reduce_sum(captions, axis=1)
        return tf.cast(tf.stack([total, captions[:, 0]], axis=1), tf.float32)


def write_photos(folder, names, form="JPEG"):
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names]
    for i, path in enumerate(paths):
        color = COLORS[i % len(COLORS)]
        PIL.Image.new("RGB", (9, 7), color).save(path, form)
    return paths


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - len(content) // 4])


def examples(images, token_ids=((2, 0),)):
    token_ids = np.array(token_ids, np.int32)
    count = len(getattr(images, "paths", getattr(images, "rows", ())))
    return Examples(
        records=CaptionedImages(
            image_ids=tuple(str(i) for i in range(count)),
            captions=("some words",) * len(token_ids),
            caption_to_image=np.zeros(len(token_ids), np.int64),
            split="test",
            path="memory",
        ),
        images=images,
        texts=tiny.token_rows(token_ids),
    )


def test_embedded_texts_keep_their_order(monkeypatch):
    monkeypatch.setattr(retrieval_metrics, "CAPTION_CHUNK", 2)
    token_ids = [
        [7, 1, 1, 1],
        [5, 0, 0, 0],
        [6, 2, 2, 0],
        [3, 0, 0, 0],
        [4, 9, 0, 0],
    ]
    network = Network()
    images = FileNames(["unused"])
    found = Embedder(network).texts(examples(images, token_ids))
    # The sum of the row's ids, and its first id.
    wanted = [[10, 7], [5, 5], [10, 6], [3, 3], [13, 4]]
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == np.float32
    # Sorted lengths are 1 1 | 2 3 | 4.
    assert network.widths == [4, 4, 4]


def test_chunks_of_any_size_share_a_few_traces(monkeypatch):
    monkeypatch.setattr(retrieval_metrics, "CAPTION_CHUNK", 3)
    token_ids = np.tril(np.ones((11, 11), np.int32))
    network = Network()
    made = Embedder(network)
    source = examples(FileNames(["unused"]), token_ids)
    made.texts(source)
    # For 3 captions of 3 words, for any words, and for any captions.
    assert network.traces <= 3
    before = network.traces
    made.texts(source)
    assert network.traces == before


def test_photos_are_decoded_and_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval_metrics, "IMAGE_CHUNK", 2)
    names = [f"{i}.png" for i in range(5)]
    paths = write_photos(tmp_path, names, "PNG")
    source = examples(FileNames(paths))
    found = Embedder(Network(), image_size=SIZE).images(source)
    np.testing.assert_allclose(found, COLORS, atol=1e-3)


def test_training_stops_with_the_name_of_a_broken_photo(tmp_path, eagerly):
    folder = tiny.write_precomputed(tmp_path / "data")
    for split, size in tiny.SPLITS.items():
        names = [f"{split}{i}.jpg" for i in range(size)]
        write_photos(tmp_path / "photos", names)
    settings = tiny.settings(
        folder,
        tmp_path / "run",
        epochs=1,
        image_encoder="small",
        image_features="",
        images=tmp_path / "photos",
        image_size=SIZE,
        loss="infonce",
        image_units=4,
        text_units=4,
        batch_normalization="none",
    )
    session, train = runs.prepare(settings, runs.start(settings, False))
    cut(tmp_path / "photos" / "train7.jpg")
    gif = photo_files.CONTENTS["is a gif.jpg"][:20]
    (tmp_path / "photos" / "train9.jpg").write_bytes(gif)
    (tmp_path / "photos" / "train3.jpg").unlink()
    with pytest.raises(InputError) as caught:
        loop.fit(session, train)
    for row in (3, 7, 9):
        assert f"train{row}.jpg" in str(caught.value)
    assert session.state.epoch == 0
