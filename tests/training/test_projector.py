"""Tests the files for TensorBoard's projector."""

import numpy as np
import PIL.Image
from google.protobuf import text_format
from tensorboard.plugins.projector import projector_config_pb2

from tbnets.training import loop
from tbnets.visualization.plots import Points

COLUMNS = {
    "text": ["a dog", "a\tcat\nsits", ""],
    "kind": ["caption", "caption", "image"],
}


def config(folder):
    text = (folder / "projector_config.pbtxt").read_text()
    found = projector_config_pb2.ProjectorConfig()
    return text_format.Parse(text, found).embeddings[0]


def test_projector_files_hold_vectors_words_and_thumbnails(tmp_path):
    vectors = np.array([[0.5, -1.0], [0.25, 0], [1e-9, 1]], np.float32)
    thumbnails = np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3)
    loop.write_points(tmp_path, "test", Points(vectors, COLUMNS, thumbnails))
    found = config(tmp_path)
    assert found.tensor_name == "test"
    assert list(found.tensor_shape) == [3, 2]
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / found.tensor_path, delimiter="\t"), vectors
    )
    # A line with the names of the columns, then a line for each point.
    assert (tmp_path / found.metadata_path).read_text() == (
        "text\tkind\na dog\tcaption\na cat sits\tcaption\n\timage\n"
    )
    assert list(found.sprite.single_image_dim) == [2, 2]
    with PIL.Image.open(tmp_path / found.sprite.image_path) as sprite:
        pixels = np.asarray(sprite)
    # Three thumbnails in a square of two by two.
    assert pixels.shape == (4, 4, 3)
    np.testing.assert_array_equal(pixels[:2, :2], thumbnails[0])
    np.testing.assert_array_equal(pixels[:2, 2:], thumbnails[1])
    np.testing.assert_array_equal(pixels[2:, :2], thumbnails[2])
    assert (pixels[2:, 2:] == 255).all()
