"""Makes a SavedModel that localizes phrases by mean colours."""

import functools
import pathlib
import shutil
import tempfile

import numpy as np
import PIL.Image
import tensorflow as tf

from tbnets.data.images import decode_photo
from tbnets.features.proposals import Proposer
from tbnets.features.regions import roi_average
from tbnets.serving.endpoints import region_endpoints
from tbnets.serving.export import write_saved_model
from tbnets.text.vocabulary import Tokenizer, Vocabulary

VOCABULARY = Vocabulary(("", "[UNK]", "blue", "green", "red"))
BOXES = {"red": (10, 20, 50, 60), "blue": (70, 10, 110, 50)}
SIZE = (120, 80)


class ColourNetwork(tf.Module):
    """Embeds a photo or region as its mean colour, a text as its words'."""

    embedding_dim = 3

    def __init__(self):
        super().__init__()
        rows = [[0] * 3, [1] * 3, [0, 0, 1], [0, 1, 0], [1, 0, 0]]
        self.words = tf.Variable(rows, dtype=tf.float32)

    def embed_images(self, images, training=False):
        if images.shape.rank == 4:
            images = tf.reduce_mean(images, axis=[1, 2])
        return tf.math.l2_normalize(images, axis=-1)

    def embed_text(self, texts, training=False):
        total = tf.reduce_sum(tf.gather(self.words, texts), axis=1)
        return tf.math.l2_normalize(total, axis=-1)

    def similarities(self, regions, phrases):
        return tf.matmul(regions, phrases, transpose_b=True)


class MeanColours:
    """Computes the mean colours of the boxes of an encoded photo."""

    @staticmethod
    def decode(image_bytes):
        pixels = decode_photo(image_bytes)
        return pixels, tf.cast(tf.shape(pixels)[1::-1], tf.float32)

    @staticmethod
    def of_decoded(pixels, sides, boxes):
        return roi_average(tf.cast(pixels, tf.float32), boxes)


def write_model(path, read_regions=MeanColours):
    """Writes the model; None for `read_regions`: it takes only features."""
    written = pathlib.Path(_written(read_regions).name, "1")
    return shutil.copytree(written, pathlib.Path(path))


@functools.cache
def _written(read_regions):
    """Returns a `TemporaryDirectory` with the model, once a process."""
    endpoints = region_endpoints(
        ColourNetwork(),
        Tokenizer(VOCABULARY),
        region_dim=3,
        read_regions=read_regions,
    )
    proposals = Proposer(limit=30, iou_threshold=0.75).description()
    made_by = {"image_features_made_by": {"proposals": proposals}}
    folder = tempfile.TemporaryDirectory()
    write_saved_model(endpoints, pathlib.Path(folder.name, "1"), made_by)
    return folder


def write_photo(path):
    """Writes a grey photo with a red and a blue square."""
    pixels = np.full((*SIZE[::-1], 3), 128, np.uint8)
    for (x_min, y_min, x_max, y_max), colour in zip(
        BOXES.values(), ([200, 0, 0], [0, 0, 200])
    ):
        pixels[y_min:y_max, x_min:x_max] = colour
    PIL.Image.fromarray(pixels).save(path)
    return path


def is_centred_in(box, other):
    """Returns whether the centre of a box is inside a second box.

    A part of a square also has its mean colour, so it can be the best box.
    """
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return other[0] < x < other[2] and other[1] < y < other[3]
