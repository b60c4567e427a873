import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import positives
from tests import reference

# Ids of images, of the captions' images, and of the captions' texts.
BATCHES = {
    "ragged": ([4, 9, 2, 7], [4, 4, 9, 7, 7, 7, 2], None),
    "image_without_caption": ([1, 2, 3], [1, 1, 3, 3, 3], None),
    "image_drawn_twice": ([5, 6, 5], [5, 6, 6, 5, 6], None),
    "one_text_on_two_images": ([1, 2, 3, 1], [1, 2, 3, 1], [8, 8, 9, 7]),
    "more_images": ([1, 2, 3, 4, 5], [2, 4], None),
    "one_image": ([1], [1, 1, 1], None),
    "one_pair": ([1], [1], None),
    "no_positive": ([1, 2], [3, 4, 5], None),
    "no_caption": ([1, 2], [], None),
    "empty": ([], [], None),
}


@pytest.mark.parametrize("name", BATCHES)
def test_masks_are_those_of_the_loops(name):
    image_ids, caption_ids, text_ids = BATCHES[name]
    for texts in (text_ids, [1] * len(caption_ids)):
        found = positives.positive_masks(
            np.array(image_ids, np.int64),
            np.array(caption_ids, np.int32),
            None if texts is None else np.array(texts, np.int64),
        )
        wanted = reference.positive_masks(image_ids, caption_ids, texts)
        for mask, values in zip(found, wanted):
            assert mask.dtype == tf.bool
            np.testing.assert_array_equal(mask, values)


def test_masks_compile(compiled):
    # Texts 8 join image 1 with image 2, whose other caption reads 9.
    found = compiled(positives.positive_masks)(
        tf.constant([1, 2]), tf.constant([1, 2, 2]), tf.constant([8, 8, 9])
    )
    np.testing.assert_array_equal(found.image_to_text, [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(found.image_to_image, [[1, 1], [1, 1]])


def test_ids_that_a_float_would_merge_stay_apart():
    ids = np.array([1000092795, 1000092796])
    masks = positives.positive_masks(ids, ids)
    np.testing.assert_array_equal(masks.image_to_text, np.eye(2, dtype=bool))
