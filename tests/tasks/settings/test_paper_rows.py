"""What the rows of the papers' tables draw, and for how long they learn."""

import pathlib

import pytest

from tests.tiny import parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
OF_2016 = sorted(
    path
    for path in (ROOT / "configs").glob("wang2016_*.flags")
    if "_base" not in path.name
)


def row(path):
    return parse(f"--flagfile={path}")


def completed(settings):
    """Returns of how many texts and images each pair of a row is made."""
    if settings.run.task == "localization":
        return (
            settings.phrases.phrases_per_region,
            settings.phrases.regions_per_phrase,
        )
    return settings.batches.captions_per_image, 1


@pytest.mark.parametrize("path", OF_2016, ids=lambda path: path.stem)
def test_pairs_of_2016_are_completed_where_a_term_within_a_view_counts(path):
    # Sec. 2.2: 1500 pairs, and one more sentence of each image for the rows
    # with structure terms; Sec. 3.3: more phrases and more regions.
    settings = row(path)
    within = (
        settings.loss.text_to_text_weight + settings.loss.image_to_image_weight
    )
    both = (2, 2) if settings.run.task == "localization" else (2, 1)
    assert completed(settings) == (both if within else (1, 1))


@pytest.mark.parametrize("data", ["coco", "flickr30k"])
def test_an_epoch_of_2016_is_five_that_draw_one_caption_of_each_image(data):
    settings = row(ROOT / f"configs/wang2016_{data}_base.flags")
    # Sec. 3.1: the rate falls after every 10 epochs; Sec. 2.2: within 30.
    assert (settings.optimizer.decay_epochs, settings.epochs) == (
        5 * 10,
        5 * 30,
    )
    assert settings.optimizer.schedule == "step"


@pytest.mark.parametrize("data, words", [("flickr30k", 8569), ("coco", 11263)])
def test_the_lstm_of_2018_knows_as_many_words_as_the_paper(data, words):
    # Sec. 5.3; the two ids of padding and unknown words come beside them.
    settings = row(ROOT / f"configs/wang2018_lstm_{data}.flags")
    assert (settings.texts.max_words, settings.texts.min_count) == (words, 1)
