"""Tests of the counts of what a data set holds."""

import numpy as np

from tbnets.cli import describe_data
from tbnets.data.captions import (
    CaptionedImages,
)
from tbnets.data.phrases import read_phrases
from tests.data.test_phrases import images_named, write_entities


def make(captions, owners, num_images=3, split="train", ids="xyz"):
    ids = tuple(ids[:num_images])
    return CaptionedImages(ids, captions, np.array(owners, int), split, "file")


def test_counts_of_a_split():
    # x: a dog twice, in capitals or not, two dogs and ""; y: a dog, "" and
    # "."; z: none.
    images = make(
        ["A dog", "a dog", "Two dogs run", "", "A dog", "", "."],
        [0, 0, 0, 0, 1, 1, 1],
    )
    counts = describe_data.describe_split(images, {"a", "two", "run"})
    assert counts == {
        "images": 3,
        "captions": 7,
        "captions_per_image": {"min": 0, "mean": 7 / 3, "max": 4},
        # Words: 2, 2, 3, 0, 2, 0, 0; the median of 0 0 0 2 2 2 3 is 2.
        "words_per_caption": {"min": 0, "median": 2.0, "max": 3},
        "images_without_captions": 1,
        "empty_captions": 2,
        "captions_without_words": 3,
        "repeated_within_an_image": 1,
        "shared_by_several_images": 3,
        "words": 9,
        "distinct_words": 5,  # a dog two dogs run
        "unknown_words": 4,  # dog, dog, dogs, dog
        "unknown_word_rate": 4 / 9,
    }


def test_counts_of_phrases_are_those_of_the_files(tmp_path):
    found = read_phrases(write_entities(tmp_path))
    counts = describe_data.describe_phrases(found)
    # Boxes: 48 x 20 of 50 x 40 twice (0.48), 30 x 8 (0.12), a whole photo.
    assert counts == {
        "phrases": 8,
        "phrases_with_a_box": 4,
        "no_box_nobndbox": 1,
        "no_box_notvisual": 1,
        "no_box_scene": 1,
        "no_box_unknown": 1,
        "chains_with_a_box": 3,
        "distinct_phrases": 4,
        "boxed_phrases_per_image": {"min": 1, "mean": 2.0, "max": 3},
        "images_without_phrases": 0,
        "words_per_phrase": {"min": 1, "median": 2.0, "max": 2},
        "median_box_area": 0.48,
        "type_animals": 1,
        "type_other": 1,
        "type_people": 2,
        "type_vehicles": 1,
    }
    none = read_phrases(tmp_path, images_named())
    counts = describe_data.describe_phrases(none)
    assert counts["phrases"] == 0 and "median_box_area" not in counts
    assert counts["words_per_phrase"] == {"min": 0, "median": 0.0, "max": 0}
