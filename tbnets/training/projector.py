"""Embeddings for TensorBoard's projector, with words and thumbnails."""

import io
import operator
import pathlib

import numpy as np
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector import projector_config_pb2

from tbnets.files import write_atomically


def write_points(folder, name, points):
    """Writes points where TensorBoard's projector finds them.

    Args:
        folder: folder of the event files.
        name: what the projector calls them.
        points: the `visualization.points.Points`.
    """
    folder = pathlib.Path(folder)
    config = projector_config_pb2.ProjectorConfig()
    embedding = config.embeddings.add(
        tensor_name=name,
        tensor_shape=points.vectors.shape,
        tensor_path="points_vectors.tsv",
        metadata_path="points_metadata.tsv",
    )
    vectors = io.BytesIO()
    np.savetxt(vectors, points.vectors, fmt="%.5g", delimiter="\t")
    contents = {
        embedding.tensor_path: vectors.getvalue(),
        embedding.metadata_path: metadata(points.columns).encode(),
    }
    if points.thumbnails is not None:
        embedding.sprite.image_path = "points_sprite.png"
        side = points.thumbnails.shape[1]
        embedding.sprite.single_image_dim.extend([side, side])
        picture = io.BytesIO()
        Image.fromarray(sprite(points.thumbnails)).save(picture, "PNG")
        contents[embedding.sprite.image_path] = picture.getvalue()
    config_text = text_format.MessageToString(config)
    contents["projector_config.pbtxt"] = config_text.encode()
    for path, content in contents.items():
        write_atomically(folder / path, operator.methodcaller("write", content))


def metadata(columns):
    """Returns columns of strings as the projector's table of metadata.

    Args:
        columns: dict, name -> strings. Tabs and line breaks in them become
            blanks.
    """
    rows = zip(*columns.values())
    lines = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    # A single column has no head, says the projector.
    head = [list(columns)] if len(columns) > 1 else []
    return "".join("\t".join(line) + "\n" for line in [*head, *lines])


def sprite(thumbnails):
    """Lays thumbnails out in a square, row after row.

    Args:
        thumbnails: uint8 `[n, side, side, 3]`.

    Returns:
        uint8 `[height, height, 3]`, white where nothing is left.
    """
    count, side = thumbnails.shape[:2]
    across = int(np.ceil(np.sqrt(count)))
    tiles = np.full((across**2, side, side, 3), 255, np.uint8)
    tiles[:count] = thumbnails
    grid = tiles.reshape(across, across, side, side, 3).swapaxes(1, 2)
    return grid.reshape(across * side, across * side, 3)
