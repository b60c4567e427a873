"""The rows of a batch of phrase localization -> the arrays of a step."""

import numpy as np
import tensorflow as tf

from tbnets.data.batches import signature_of
from tbnets.data.shares import WHOLE
from tbnets.pipelines import untuned


class PhraseBatches:
    """The batches of one epoch after the other, as `data.EpochBatches`.

    Args:
        examples: `PhraseExamples`.
        sampler: its `PhraseSampler`.

    Attributes:
        epoch: integer from 0; set it, then go through `dataset`.
        dataset: `tf.data.Dataset` of the batches of `epoch`: `images` are the
            regions that were drawn, `captions` the phrases, ids those of the
            things that they name (`phrase_to_chain`); beside them stands what
            `localization.candidates` describes.
        num_batches: how many an epoch has.
    """

    def __init__(self, examples, sampler):
        self.epoch = 0
        self.num_batches = sampler.num_batches
        self.smallest = None
        self._examples = examples
        self._sampler = sampler
        self.dataset = self.dataset_of([WHOLE])

    def dataset_of(self, shares):
        """Returns some shares of each batch, see `data.EpochBatches`."""
        regions = tf.TensorSpec((None, self._examples.features.dim), tf.float32)
        signature = signature_of(self._examples, regions) | {
            "drawn_for": tf.TensorSpec((None,), tf.int32),
            "candidates": regions,
            "is_negative": tf.TensorSpec((None, None), tf.bool),
        }
        dataset = tf.data.Dataset.from_generator(
            lambda: self._generate(shares), output_signature=signature
        )
        return untuned(dataset.prefetch(2 * len(shares)))

    def _generate(self, shares):
        for rows in self._sampler.epoch(self.epoch):
            for share in shares:
                yield self._read(rows, share)

    def _read(self, rows, share):
        """Returns what stands in some rows; features are read at once."""
        examples, drawn = self._examples, share.of(len(rows.regions))
        phrases = share.of(len(rows.phrases))
        images = rows.regions[drawn]
        others = rows.candidates[share.of(len(rows.candidates))]
        regions = np.concatenate([images, others])
        features = examples.features.take_regions(regions)
        chains = examples.phrases.phrase_to_chain[rows.phrases]
        batch = {
            "images": features[: len(images)],
            "captions": share.read(examples.texts, rows.phrases),
            "image_ids": chains[rows.drawn_for][drawn],
            "caption_image_ids": chains[phrases],
            "drawn_for": rows.drawn_for[drawn].astype(np.int32),
            "candidates": features[len(images) :],
            "is_negative": rows.is_negative[phrases],
        }
        if examples.text_ids is not None:
            batch["text_ids"] = examples.text_ids[rows.phrases][phrases]
        return batch
