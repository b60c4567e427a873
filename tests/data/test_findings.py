import numpy as np
import pytest

from tbnets.data import duplicates, findings
from tbnets.data.captions import CaptionedImages

CLEAN = [
    "A dog runs in the snow",
    "Two men are on a boat",
    "A girl in red jumps",
    "The cat sleeps",
]


def split_of(captions, name="train", owners=None):
    owners = range(len(captions)) if owners is None else owners
    keys = [f"{name}{i}.jpg" for i in range(max(owners, default=-1) + 1)]
    return CaptionedImages(keys, captions, [*owners], name, "made up")


def kinds(found):
    return {finding.kind: finding.count for finding in found}


def test_clean_captions_have_no_findings():
    splits = {"train": split_of(CLEAN[:3]), "test": split_of(CLEAN[3:], "test")}
    assert findings.caption_findings(splits) == []
    assert findings.caption_findings({"train": split_of([])}) == []


PLANTED = {
    "short_captions": ["Dog"],
    "long_captions": ["A dog runs in the snow " * 8],
    "other_languages": ["Ein Hund rennt mit einem Ball auf der Wiese"],
    "shared_captions": ["A  DOG runs in the snow"],
}


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_caption_is_found_once(kind):
    splits = {
        "train": split_of(CLEAN),
        "test": split_of(PLANTED[kind], "test"),
    }
    (finding,) = findings.caption_findings(splits)
    assert (finding.kind, finding.count) == (kind, 1)
    assert any("'test0.jpg'" in line for line in finding.examples)


def test_captions_of_one_image_are_not_shared():
    same = split_of(["A dog runs", "A dog runs"], owners=[0, 0])
    assert findings.caption_findings({"train": same}) == []


def test_an_image_in_two_splits_does_not_share_its_captions():
    train, test = split_of(CLEAN), split_of(CLEAN)
    assert not findings.caption_findings({"train": train, "test": test})


@pytest.mark.parametrize(
    "text",
    [
        "Собака бежит по снегу",
        "犬が雪の中を走る",
        "Un perro corre con los niños",
    ],
)
def test_languages_are_told_apart(text):
    (finding,) = findings.caption_findings({"train": split_of([*CLEAN, text])})
    assert finding.kind == "other_languages"
    # A data set in this language has no finding, and English is the other one.
    (finding,) = findings.caption_findings(
        {"train": split_of([f"{text} {i}" for i in range(9)] + CLEAN[:1])}
    )
    assert finding.count == 1 and CLEAN[0] in finding.examples[0]


def test_images_without_captions():
    train = split_of(CLEAN[:2], owners=[0, 2])
    (finding,) = findings.caption_findings({"train": train})
    assert finding.kind == "images_without_captions"
    assert finding.examples == ["train 'train1.jpg'"]
    assert str(finding).startswith("1 image without captions\n")


def look(seed, digest=None, noise=0.0, fault=None):
    draw = np.random.default_rng(seed)
    grey = draw.integers(0, 200, (9, 9)) + noise * np.eye(9)
    return duplicates.Look(fault, digest or bytes([seed]), grey)


def test_each_planted_photo_is_found_once():
    looks = [
        *(look(0), look(1), look(2), look(3), look(4)),
        look(0),  # An equal file.
        look(1, b"near", noise=9),
        look(9, b"", fault="is empty"),
        look(10, b"", fault="is empty"),
    ]
    # Photos 0 and 5 are in the training split, 1 and 6 in different splits.
    splits = "train train train test train train test train test".split()
    photos = [
        findings.Photo(split, f"{i}.jpg", look)
        for i, (split, look) in enumerate(zip(splits, looks))
    ]
    found = findings.photo_findings(photos)
    assert kinds(found) == {"same_file": 1, "near_copy_in_two_splits": 1}
    assert found[0].examples[0].startswith("train '0.jpg' and train '5.jpg'")
    assert found[1].examples[0].startswith("train '1.jpg' and test '6.jpg'")


def test_photos_of_one_scene_need_features_and_contours():
    base = np.random.default_rng(0).integers(0, 200, (9, 9))
    other = np.random.default_rng(1).integers(0, 200, (9, 9))
    greys = [base, 0.6 * base + 0.4 * other, other * 0 + other.T, base[::-1]]
    looks = [
        duplicates.Look(None, bytes([i]), grey) for i, grey in enumerate(greys)
    ]
    rows = duplicates.contours(greys)
    products = rows @ rows.T
    assert 0.4 < products[0, 1] < 0.92 and products[0, 2] < 0.4

    def found(features):
        photos = zip("0123", looks, features)
        photos = [findings.Photo("train", *photo) for photo in photos]
        return findings.photo_findings(photos)

    # Row 2 has the features of row 0, but other contours.
    features = np.array([[1, 1, 0], [1, 1.1, 0], [1, 1, 0], [0, 0, 1]])
    (finding,) = found(features)
    assert (finding.kind, finding.count) == ("one_scene", 1)
    assert found(np.eye(4)) == found([None, *features[1:]]) == []


def test_examples_are_few_and_the_most_similar_first():
    looks = [look(0, bytes([i]), noise=12 * i) for i in range(5)]
    photos = [findings.Photo("train", f"{look.digest}", look) for look in looks]
    (finding,) = findings.photo_findings(photos)
    assert finding.count > findings.MOST_EXAMPLES == len(finding.examples)
    values = [float(line.split()[-1]) for line in finding.examples]
    rows = duplicates.contours([look.grey for look in looks])
    products = np.sort((rows @ rows.T)[np.triu_indices(5, 1)])[::-1]
    assert values == pytest.approx(products[: len(values)], abs=0.006)
