"""Tests of phrases with boxes, and of reading Flickr30K Entities."""

import numpy as np
import pytest

from tbnets.data.captions import CaptionedImages, read_captions
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tests import refusals

SENTENCES = {
    "7": "[/EN#1/people Two men] push [/EN#2/other/vehicles a cart] .\n"
    "[/EN#1/people Men] outside [/EN#3/scene a barn] under [/EN#4/other sun] "
    "near [/EN#0/notvisual it] and [/EN#9/other hay] .\n",
    "8_a": "[/EN#1/animals A dog] .\nNothing .\n",
}
ANNOTATIONS = {
    "7": (
        (50, 40),
        "<object><name>1</name>{}</object>"
        "<object><name>1</name><name>2</name>{}</object>"
        "<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>"
        "<object><name>4</name><scene>0</scene><nobndbox>1</nobndbox></object>",
        [(3, 5, 10, 20), (21, 1, 50, 8)],
    ),
    "8_a": ((30, 60), "<object><name>1</name>{}</object>", [(1, 1, 30, 60)]),
}


def box_of(edges):
    names = ("xmin", "ymin", "xmax", "ymax")
    inside = "".join(f"<{n}>{e}</{n}>" for n, e in zip(names, edges))
    return f"<bndbox>{inside}</bndbox>"


def write_entities(folder):
    """Writes two images: 7 (50 x 40 pixels) and 8_a (30 x 60)."""
    for name in ("Sentences", "Annotations"):
        (folder / name).mkdir(parents=True)
    for stem, text in SENTENCES.items():
        (folder / "Sentences" / f"{stem}.txt").write_text(text)
    for stem, ((width, height), objects, boxes) in ANNOTATIONS.items():
        (folder / "Annotations" / f"{stem}.xml").write_text(
            f"<annotation>\n<filename>{stem}.jpg</filename>\n<size><width>"
            f"{width}</width><height>{height}</height></size>\n"
            + objects.format(*map(box_of, boxes))
            + "\n</annotation>\n"
        )
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_entities(tmp_path / "entities")


def images_named(*ids, file_names=()):
    return CaptionedImages(
        image_ids=ids,
        captions=(),
        caption_to_image=np.zeros(0, int),
        split="test",
        path="list",
        file_names=file_names,
    )


def test_entities_have_the_boxes_of_their_files(folder):
    found = read_phrases(folder)
    assert found.images.image_ids == ("7.jpg", "8_a.jpg")
    assert found.images.captions == (
        "Two men push a cart .",
        "Men outside a barn under sun near it and hay .",
        "A dog .",
        "Nothing .",
    )
    assert found.images.caption_to_image.tolist() == [0, 0, 1, 1]
    assert found.image_sizes.tolist() == [[50, 40], [30, 60]]
    assert found.phrases == ("Two men", "a cart", "Men", "A dog")
    ids = "7.jpg#0#0 7.jpg#0#1 7.jpg#1#0 8_a.jpg#0#0"
    assert found.phrase_ids == (*ids.split(),)
    assert found.phrase_to_caption.tolist() == [0, 0, 1, 2]
    assert found.phrase_to_image.tolist() == [0, 0, 0, 1]
    assert found.spans.tolist() == [[0, 2], [3, 5], [0, 1], [0, 2]]
    assert found.types == (
        ("people",),
        ("other", "vehicles"),
        ("people",),
        ("animals",),
    )
    assert found.chains == ("1", "2", "1", "1")
    # Pixels 3..10 reach from 2 to 10; the two boxes of chain 1 merge.
    both = [2, 0, 50, 20]
    assert found.boxes.tolist() == [both, [20, 0, 50, 8], both, [0, 0, 30, 60]]
    left_out = {key: n.tolist() for key, n in found.left_out.items()}
    reasons = ("nobndbox", "notvisual", "scene", "unknown")
    assert left_out == dict.fromkeys(reasons, [1, 0])
    # Chain 1 of another image is another thing.
    assert found.phrase_to_chain.tolist() == [0, 1, 0, 2]
    assert found.phrase_to_text.tolist() == [0, 1, 2, 3]
    masks = found.type_masks()
    assert [*masks] == ["animals", "other", "people", "vehicles"]
    assert masks["vehicles"].tolist() == [False, True, False, False]
    assert masks["people"].tolist() == [True, False, True, False]


def test_images_are_matched_by_stem_in_the_requested_order(folder):
    wanted = images_named("b", "a", file_names=("x/8_a.png", "7.jpg"))
    found = read_phrases(folder, wanted)
    assert found.images.image_ids == ("b", "a")
    assert found.images.file_name(0) == "x/8_a.png"
    assert found.images.split == "test"
    assert found.phrase_ids == ("b#0#0", "a#0#0", "a#0#1", "a#1#0")


def test_boxes_scale_to_photos_exactly(folder):
    found = read_phrases(folder)
    assert found.fractions()[1].tolist() == [20 / 50, 0, 1, 8 / 40]
    photos = found.in_photos([[224, 224], [60, 60]])
    assert photos.image_sizes.tolist() == [[224, 224], [60, 60]]
    # 20 of 50 of 224 pixels: 89.6; 8 of 40: 44.8; borders stay borders.
    assert photos.boxes[1].tolist() == [89.6, 0, 224, 44.8]
    assert photos.boxes[3].tolist() == [0, 0, 60, 60]
    for sizes, argument in ([[0, 1]] * 2, "boxes"), ([[1, 1]], "photo_sizes"):
        with refusals.refused(argument):
            found.in_photos(sizes)
    none = read_phrases(folder, images_named())
    assert none.boxes.shape == (0, 4) and none.fractions().shape == (0, 4)


BOMB = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]>\n<annotation>'


@pytest.mark.parametrize(
    "name, old, new, place",
    [
        ("Sentences/7.txt", "EN#3/", "EN#/", ":2"),
        ("Annotations/7.xml", "<annotation>", BOMB, "document type"),
        ("Annotations/7.xml", "</annotation>", "", "no element"),
        ("Annotations/7.xml", "<xmin>21<", "<xmin>51<", ": object[1]"),
        ("Annotations/7.xml", "<width>50", "<width>", ": <size/width>"),
    ],
)
def test_the_error_of_a_bad_file_names_the_place_and_other_files_are_read(
    folder, name, old, new, place
):
    whole, text = read_phrases(folder), (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    found, [problem] = refusals.read_past(
        lambda problems: read_phrases(folder, problems=problems)
    )
    assert problem.path == str(folder / name) and place in str(problem)
    assert found.phrase_ids[-1] == "8_a.jpg#0#0"
    assert set(found.phrase_ids) < set(whole.phrase_ids) or "[" in place


def test_an_image_without_files_raises_an_error(folder, tmp_path):
    with refusals.at(folder / "Annotations" / "12.xml"):
        read_phrases(folder, images_named("12.jpg"))
    for key in ("../7.jpg", "/7.jpg"):
        with pytest.raises(InputError, match=key):
            read_phrases(folder, images_named(key))
    with pytest.raises(FileNotFoundError, match="Sentences"):
        read_phrases(tmp_path)


@pytest.mark.real_data
def test_counts_of_flickr8k_entities(data_root):
    root = data_root / "flickr8k" / "entities"
    if not root.is_dir():
        pytest.skip(f"Flickr30K Entities not found: {root}")
    dataset = data_root / "flickr8k" / "dataset_flickr8k.json"
    images = read_captions(dataset, "test").subset(range(100))
    found = read_phrases(root, images)
    assert found.num_phrases == 1295
    out = sum(int(count.sum()) for count in found.left_out.values())
    assert found.num_phrases + out == 1558  # As `grep -o "/EN#"` counts.
    words = [caption.split() for caption in found.images.captions]
    spoken = [
        " ".join(words[row][first:end])
        for row, (first, end) in zip(found.phrase_to_caption, found.spans)
    ]
    assert tuple(spoken) == found.phrases
