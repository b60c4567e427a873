"""Mini-batch construction: records -> the batches a network trains on.

Neighbourhood sampling of Wang et al. 2018, Algorithm 1: a batch holds
distinct images with several captions of each, so that the within-text term
has positives. What a batch holds is a function of (seed, epoch) alone, never
of the state of a random generator, so a resumed run sees the same batches.
"""

import numpy as np
import tensorflow as tf

from tbnets.images import decode_images


def sample_epoch(records, images_per_batch, captions_per_image, seed, epoch):
    """Yields the rows of each batch of one epoch.

    Every image that has captions is drawn once; of its captions,
    `captions_per_image` are drawn without replacement (all, when it has
    fewer). The last batch may be smaller.

    Args:
        records: a `CaptionedImages`.
        images_per_batch: images a batch. Wang 2018: 500; Wang 2016: 1500.
        captions_per_image: captions drawn of each. Papers: 2; 1 gives
            plain pairs without neighbours.
        seed: integer of the run.
        epoch: integer from 0.

    Yields:
        (image_rows int64 `[n]`, caption_rows int64 `[m]`).

    Source: Wang et al. 2018, Algorithm 1 (c) and Sec. 5.1. Departures: an
    image stands once in a batch, with its captions beside it, where the
    paper draws pairs and completes them.
    """
    generator = np.random.default_rng([seed, epoch])
    rows_of = records.caption_rows()
    order = np.array([i for i, rows in enumerate(rows_of) if len(rows)])
    order = generator.permutation(order)
    drawn = [
        generator.permutation(rows_of[image])[:captions_per_image]
        for image in order
    ]
    for start in range(0, len(order), images_per_batch):
        stop = start + images_per_batch
        yield order[start:stop], np.concatenate(drawn[start:stop])


def num_batches(records, images_per_batch):
    """Returns how many batches `sample_epoch` yields."""
    with_captions = int((records.captions_per_image > 0).sum())
    return -(-with_captions // images_per_batch)


def _check_sizes(examples, images_per_batch, captions_per_image):
    for name, value in (
        ("images_per_batch", images_per_batch),
        ("captions_per_image", captions_per_image),
    ):
        if value < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: {name}={value}. "
                f"Change --{name}."
            )
    if not num_batches(examples.records, images_per_batch):
        raise ValueError(
            "`examples` must hold at least one image with a caption. "
            f"Received: {examples.records.num_images} images, "
            f"{examples.records.num_captions} captions from "
            f"{examples.records.path}. Choose another split."
        )


def training_batches(
    examples,
    images_per_batch,
    captions_per_image,
    seed,
    first_epoch=0,
    image_size=None,
):
    """Returns an endless `tf.data.Dataset` of training batches.

    Each element is the dict that `EmbeddingNetwork.train_step` takes. Epochs
    follow one another from `first_epoch`; give `fit` the number of batches
    as `steps_per_epoch`.

    Args:
        examples: an `Examples`.
        images_per_batch: images a batch.
        captions_per_image: captions drawn of each image.
        seed: integer of the run.
        first_epoch: where a resumed run goes on.
        image_size: side of the decoded images in pixels, when
            `examples.images` are file names.
    """
    _check_sizes(examples, images_per_batch, captions_per_image)
    caption_to_image = examples.records.caption_to_image

    def generate():
        epoch = first_epoch
        while True:
            for image_rows, caption_rows in sample_epoch(
                examples.records,
                images_per_batch,
                captions_per_image,
                seed,
                epoch,
            ):
                batch = {
                    "images": examples.images.batch(image_rows),
                    "captions": examples.texts.batch(caption_rows),
                    "image_ids": image_rows,
                    "caption_image_ids": caption_to_image[caption_rows],
                }
                if examples.text_ids is not None:
                    batch["text_ids"] = examples.text_ids[caption_rows]
                yield batch
            epoch += 1

    signature = {
        "images": tf.TensorSpec(
            (None, *examples.images.shape), examples.images.dtype
        ),
        "captions": tf.TensorSpec(
            (None, *examples.texts.shape), examples.texts.dtype
        ),
        "image_ids": tf.TensorSpec((None,), tf.int64),
        "caption_image_ids": tf.TensorSpec((None,), tf.int64),
    }
    if examples.text_ids is not None:
        signature["text_ids"] = tf.TensorSpec((None,), tf.int64)
    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=signature
    )
    if examples.images.dtype == tf.string:
        dataset = dataset.map(
            lambda batch: {
                **batch,
                "images": read_images(batch["images"], image_size),
            }
        )
    return dataset.prefetch(2)


def read_images(paths, image_size):
    """Reads and decodes photos in the graph.

    Args:
        paths: string `[n]`.
        image_size: side of the decoded images in pixels.

    Returns:
        float32 `[n, image_size, image_size, 3]` RGB in [0, 255].
    """
    contents = tf.map_fn(tf.io.read_file, paths)
    return decode_images(contents, image_size)
