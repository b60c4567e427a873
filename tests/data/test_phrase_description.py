"""Tests of the counts of phrases."""

from tbnets.data.description import format_table
from tbnets.data.phrase_description import describe_phrases
from tbnets.data.phrases import read_phrases
from tests.data.test_phrases import write_entities


def test_counts_are_those_of_the_files(tmp_path):
    found = read_phrases(write_entities(tmp_path))
    counts = describe_phrases(found)
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
    lines = format_table({"test": counts}).splitlines()
    assert lines[3].split() == "no box: not visible 1".split()


def test_no_phrases_are_counted_as_none(tmp_path):
    counts = describe_phrases(read_phrases(write_entities(tmp_path)).subset([]))
    assert counts["phrases"] == 0 and "median_box_area" not in counts
    assert counts["words_per_phrase"] == {"min": 0, "median": 0.0, "max": 0}
