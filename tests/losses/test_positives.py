import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import positives
from tests import reference
from tests.losses.cases import IDS


@pytest.mark.parametrize("name", IDS)
def test_masks_equal_the_reference(name):
    image_ids, caption_ids, text_ids = IDS[name]
    for texts in (text_ids, [1] * len(caption_ids)):
        found = positives.positive_masks(
            tf.constant(image_ids, tf.int64),
            tf.constant(caption_ids, tf.int32),
            None if texts is None else tf.constant(texts, tf.int64),
        )
        wanted = reference.positive_masks(image_ids, caption_ids, texts)
        for mask, values in zip(found, wanted):
            assert mask.dtype == tf.bool
            np.testing.assert_array_equal(mask, values)
