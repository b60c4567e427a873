import numpy as np
import pytest
import tensorflow as tf

from tbnets.data import batches
from tbnets.data.captions import CaptionedImages
from tbnets.data.examples import Examples
from tbnets.data.examples import TokenRows
from tbnets.data.examples import equal_text_ids

# Image 0 has three captions, 1 has none, 2 has one, 3 has two.
RECORDS = CaptionedImages(
    image_ids=("a.jpg", "b.jpg", "c.jpg", "d.jpg"),
    captions=("a0", "d0", "a1", "c0", "a2", "d1"),
    caption_to_image=np.array([0, 3, 0, 2, 0, 3]),
    split="train",
    path="memory",
)


class Array:
    dtype = tf.float32

    def __init__(self, values):
        self.values = np.asarray(values, np.float32)
        self.shape = self.values.shape[1:]

    def batch(self, rows):
        return self.values[rows]


def examples(text_ids=None):
    return Examples(
        RECORDS,
        Array(np.arange(8).reshape(4, 2)),
        TokenRows([[2, 3, 4], [5, 0, 0], [1, 0, 0]] * 2),
        text_ids,
    )


def rows(seed=0, epoch=0, images=2, captions=2):
    return [
        (list(image_rows), list(caption_rows))
        for image_rows, caption_rows in batches.sample_epoch(
            RECORDS, images, captions, seed, epoch
        )
    ]


def test_an_epoch_draws_every_captioned_image_once():
    drawn = [image for image_rows, _ in rows() for image in image_rows]
    assert sorted(drawn) == [0, 2, 3]
    assert batches.num_batches(RECORDS, 2) == len(rows()) == 2


def test_captions_belong_to_the_images_of_their_batch():
    for epoch in range(5):
        for image_rows, caption_rows in rows(epoch=epoch):
            owners = RECORDS.caption_to_image[caption_rows]
            assert set(owners) == set(image_rows)
            assert len(set(caption_rows)) == len(caption_rows)


def test_captions_per_image_is_a_limit():
    counts = {0: 2, 2: 1, 3: 2}
    for image_rows, caption_rows in rows(images=3):
        owners = list(RECORDS.caption_to_image[caption_rows])
        assert {i: owners.count(i) for i in image_rows} == counts


def test_batches_follow_from_seed_and_epoch_alone():
    assert rows(seed=1, epoch=4) == rows(seed=1, epoch=4)
    several = {str(rows(seed, epoch)) for seed in (0, 1) for epoch in range(5)}
    assert len(several) > 5


def test_all_captions_come_up_in_time():
    seen = {
        caption
        for epoch in range(30)
        for _, caption_rows in rows(epoch=epoch, captions=1)
        for caption in caption_rows
    }
    assert seen == set(range(6))


def take(dataset, count):
    return [
        {key: value.numpy() for key, value in batch.items()}
        for batch in dataset.take(count)
    ]


def test_training_batches_hold_what_the_rows_say():
    dataset = batches.training_batches(examples(), 2, 2, seed=0)
    for epoch in (0, 1):
        found = take(dataset.skip(2 * epoch), 2)
        for batch, (image_rows, caption_rows) in zip(found, rows(epoch=epoch)):
            np.testing.assert_array_equal(batch["image_ids"], image_rows)
            np.testing.assert_array_equal(
                batch["images"], np.arange(8).reshape(4, 2)[image_rows]
            )
            np.testing.assert_array_equal(
                batch["caption_image_ids"],
                RECORDS.caption_to_image[caption_rows],
            )
            assert "text_ids" not in batch


def test_a_resumed_dataset_goes_on_where_the_straight_one_is():
    straight = take(batches.training_batches(examples(), 2, 2, seed=3), 6)
    resumed = take(
        batches.training_batches(examples(), 2, 2, seed=3, first_epoch=2), 2
    )
    for one, other in zip(straight[4:], resumed):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])


def test_tokens_are_cut_to_the_longest_of_the_batch():
    tokens = TokenRows([[2, 3, 4], [5, 0, 0], [1, 6, 0]])
    np.testing.assert_array_equal(tokens.batch([1, 2]), [[5, 0], [1, 6]])
    np.testing.assert_array_equal(tokens.batch([1]), [[5]])


def test_equal_texts_get_equal_ids():
    found = equal_text_ids(["A dog", "a  dog ", "a cat", "A DOG"])
    assert list(found) == [0, 0, 1, 0]


def test_text_ids_travel_with_their_captions():
    ids = np.array([7, 7, 8, 9, 10, 11])
    dataset = batches.training_batches(examples(ids), 3, 9, seed=0)
    (batch,) = take(dataset, 1)
    ((_, caption_rows),) = rows(images=3, captions=9)
    np.testing.assert_array_equal(batch["text_ids"], ids[caption_rows])


@pytest.mark.parametrize(
    "sizes, flag",
    [((0, 2), "--images_per_batch"), ((2, 0), "--captions_per_image")],
)
def test_bad_sizes_name_their_flag(sizes, flag):
    with pytest.raises(ValueError, match=flag):
        batches.training_batches(examples(), *sizes, seed=0)


def test_a_split_without_captions_is_refused():
    empty = CaptionedImages(
        ("a.jpg",), (), np.zeros(0, np.int64), "train", "memory"
    )
    nothing = Examples(empty, Array([[0.0]]), None)
    with pytest.raises(ValueError, match="at least one image with a caption"):
        batches.training_batches(nothing, 2, 2, seed=0)
