"""Tests of the flags that suit a number of photos."""

import pytest

from tbnets.tasks.matching.spec import OF_TRIPLETS, usual_flags
from tbnets.tasks.settings.settings import ALL

NAMES = ("epochs", "images_per_batch", "min_count")
NAMES += ("input_dropout", "word_dropout")


@pytest.mark.parametrize(
    "num_photos, values",
    [
        (119, (100, 32, 1, 0.4, 0.5)),
        (120, (60, 128, 2, 0.4, 0.5)),
        (599, (60, 128, 2, 0.4, 0.5)),
        (600, (60, 128, 2, 0.2, 0.3)),
        (2999, (60, 128, 2, 0.2, 0.3)),
        (3000, (24, 128, 5, 0.2, 0.3)),
    ],
)
def test_they_change_with_the_number_of_photos(num_photos, values):
    flags = usual_flags(num_photos)
    assert tuple(flags[name] for name in NAMES) == values


def test_they_are_flags_alone_and_their_callers_own():
    first = usual_flags(10)
    assert first.keys() <= ALL.keys()
    softmax = usual_flags(10, of_triplets=False)
    assert first.keys() - softmax.keys() == OF_TRIPLETS.keys()
    first["image_units"].append(1)
    assert usual_flags(10)["image_units"] == [1024]
