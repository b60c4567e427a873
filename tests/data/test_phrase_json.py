"""Tests of phrases in JSON: Visual Genome, RefCOCO and rows."""

import json

import pytest

from tbnets.data.phrases import read_phrases
from tests import refusals

REGIONS = [
    {
        "id": 7,
        "regions": [
            {"x": 5, "y": 8, "width": 30, "height": 20, "phrase": "a dog"},
            {"x": 1, "y": 2, "width": 9, "height": 9, "phrase": "a red ball"},
            {"x": 9, "y": 9, "width": 2, "height": 2, "phrase": "a dog"},
        ],
    },
    # It reaches beyond its photo; the second is outside.
    {
        "id": 8,
        "regions": [
            {"x": -3, "y": 0, "width": 99, "height": 4, "phrase": "a sky"},
            {"x": 60, "y": 0, "width": 9, "height": 4, "phrase": "a sun"},
        ],
    },
    {"id": 9, "regions": []},
]
FOLDER = "https://cs.stanford.edu/people/rak248/VG_100K"
IMAGE_DATA = [
    {"image_id": 8, "width": 60, "height": 40, "url": f"{FOLDER}_2/8.jpg"},
    {"image_id": 7, "width": 50, "height": 40, "url": f"{FOLDER}/7.jpg"},
]
REFERENCES = [
    {
        "ref_id": 0,
        "ann_id": 12,
        "image_id": 70,
        "split": "val",
        "sentences": [{"sent": "left dog"}, {"sent": "the dog"}],
    },
    {
        "ref_id": 1,
        "ann_id": 11,
        "image_id": 71,
        "split": "train",
        "sentences": [{"sent": "cat"}],
    },
]
INSTANCES = {
    "images": [
        {"id": 71, "file_name": "b.jpg", "width": 60, "height": 50},
        {"id": 70, "file_name": "a.jpg", "width": 40, "height": 30},
    ],
    "annotations": [
        {"id": 11, "image_id": 71, "bbox": [10.5, 1, 20, 30]},
        {"id": 12, "image_id": 70, "bbox": [0, 5, 8, 4.25]},
    ],
}


@pytest.fixture
def write(tmp_path):
    def write_files(content, **others):
        for name, value in {"phrases": content, **others}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
        return tmp_path / "phrases.json"

    return write_files


def test_regions_are_clipped_to_the_images_of_image_data(write):
    found = read_phrases(write(REGIONS, image_data=IMAGE_DATA))
    assert found.images.image_ids == ("VG_100K/7.jpg", "VG_100K_2/8.jpg")
    assert found.phrases == ("a dog", "a dog", "a red ball", "a sky")
    # x + width and y + height: 5 + 30 and 8 + 20.
    assert found.boxes.tolist() == [
        [5, 8, 35, 28],
        [9, 9, 11, 11],
        [1, 2, 10, 11],
        [0, 0, 60, 4],
    ]
    assert found.phrase_to_image.tolist() == [0, 0, 0, 1]
    assert found.phrase_to_chain.tolist() == [0, 1, 2, 3]
    assert found.image_sizes.tolist() == [[50, 40], [60, 40]]
    assert {k: n.tolist() for k, n in found.left_out.items()} == {
        "no_area": [0, 1]
    }


def test_references_have_the_boxes_of_instances(write):
    found = read_phrases(write(REFERENCES, instances=INSTANCES))
    assert found.images.image_ids == ("a.jpg", "b.jpg")
    assert found.phrases == ("left dog", "the dog", "cat")
    assert found.phrase_to_chain.tolist() == [0, 0, 1]
    # [0, 5, 8, 4.25] and [10.5, 1, 20, 30], as corners.
    dog = [0, 5, 8, 9.25]
    assert found.boxes.tolist() == [dog, dog, [10.5, 1, 30.5, 31]]
    assert found.image_sizes.tolist() == [[40, 30], [60, 50]]


def test_rows_in_a_list_are_read_like_lines(write):
    row = {"image": "a.jpg", "phrase": "a dog", "box": [1, 2, 3, 4]}
    found = read_phrases(write([row, row | {"phrase": "it"}]))
    assert found.phrases == ("a dog", "it")
    assert found.boxes.tolist() == [[1, 2, 3, 4]] * 2


def _changed(entries, *keys, to):
    copy = json.loads(json.dumps(entries))
    *path, last = keys
    entry = copy
    for key in path:
        entry = entry[key]
    entry[last] = to
    return copy


def _region(**changes):
    region = REGIONS[0]["regions"][1] | changes
    return _changed(REGIONS, 0, "regions", 1, to=region)


@pytest.mark.parametrize(
    "content, place",
    [
        (_region(phrase=7), "[0].regions[1]"),
        (_changed(REGIONS, 0, "regions", to={}), "[0].regions"),
        (_changed(REGIONS, 0, "id", to="../7"), "[0].regions[0]"),
        (_changed(REFERENCES, 0, "ann_id", to=13), "[0]"),
        ([{"image": "a.jpg", "phrase": "a dog"}], "[0]"),
    ],
)
def test_the_error_of_a_bad_entry_names_its_place(write, content, place):
    path = write(content, instances=INSTANCES)
    _, problems = refusals.read_past(
        lambda problems: read_phrases(path, problems=problems)
    )
    assert str(problems[0]).startswith(f"{path}: {place}")
