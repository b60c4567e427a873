"""The rows of a batch of phrase localization -> the arrays of a step."""

import numpy as np
import tensorflow as tf

from tbnets.data.batches import Batches


class PhraseBatches(Batches):
    """The batches of one epoch after the other, as `data.EpochBatches`.

    `images` are the regions that were drawn, `captions` the phrases, ids those
    of the things that they name (`phrase_to_chain`); beside them stands what
    `data.localization.candidates` describes.

    Args:
        examples: `PhraseExamples`.
        sampler: its `PhraseSampler`.
    """

    def __init__(self, examples, sampler):
        self._sampler = sampler
        super().__init__(examples, sampler.num_batches)

    def _rows(self):
        """Yields what `batch` takes, for each batch of `epoch`."""
        return zip(self._sampler.epoch(self.epoch))

    def batch(self, rows, share):
        """Returns what stands in some `BatchRows`; features are read at once.

        Args:
            rows: those of the whole batch.
            share: which part of it is read.
        """
        examples, drawn = self.examples, share.of(len(rows.regions))
        images = rows.regions[drawn]
        others = rows.candidates[share.of(len(rows.candidates))]
        regions = np.concatenate([images, others])
        features = examples.features.take_regions(regions)
        chains = examples.phrases.phrase_to_chain[rows.phrases]
        return self._of_texts(rows.phrases, chains, share) | {
            "images": features[: len(images)],
            "image_ids": chains[rows.drawn_for][drawn],
            "drawn_for": rows.drawn_for[drawn].astype(np.int32),
            "candidates": features[len(images) :],
            "is_negative": rows.is_negative[share.of(len(rows.phrases))],
        }

    def signature(self):
        """Returns the `tf.TensorSpec`s of a batch."""
        regions = tf.TensorSpec((None, self.examples.features.dim), tf.float32)
        return super().signature() | {
            "images": regions,
            "drawn_for": tf.TensorSpec((None,), tf.int32),
            "candidates": regions,
            "is_negative": tf.TensorSpec((None, None), tf.bool),
        }
