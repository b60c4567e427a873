import numpy as np
import PIL.Image
import pytest

from tbnets.data import findings
from tbnets.data.captions import CaptionedImages
from tests import photo_files

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


def test_clean_captions_have_no_findings():
    splits = {"train": split_of(CLEAN[:3]), "test": split_of(CLEAN[3:], "test")}
    assert findings.caption_findings(splits) == []
    assert findings.caption_findings({"train": split_of([])}) == []
    same = split_of(["A dog runs", "A dog runs"], owners=[0, 0])
    assert findings.caption_findings({"train": same, "test": same}) == []


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
    return findings.Look(fault, digest or bytes([seed]), grey)


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
    kinds = {finding.kind: finding.count for finding in found}
    assert kinds == {"same_file": 1, "near_copy_in_two_splits": 1}
    assert found[0].examples[0].startswith("train '0.jpg' and train '5.jpg'")
    assert found[1].examples[0].startswith("train '1.jpg' and test '6.jpg'")


def test_photos_of_one_scene_need_features_and_contours():
    base = np.random.default_rng(0).integers(0, 200, (9, 9))
    other = np.random.default_rng(1).integers(0, 200, (9, 9))
    greys = [base, 0.6 * base + 0.4 * other, other * 0 + other.T, base[::-1]]
    looks = [
        findings.Look(None, bytes([i]), grey) for i, grey in enumerate(greys)
    ]
    rows = findings.contours(greys)
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
    rows = findings.contours([look.grey for look in looks])
    products = np.sort((rows @ rows.T)[np.triu_indices(5, 1)])[::-1]
    assert values == pytest.approx(products[: len(values)], abs=0.006)


def photo(seed, size=(120, 90)):
    """Returns a picture of soft spots, about as smooth as a photo."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 8, 3))
    picture = PIL.Image.fromarray(cells.astype(np.uint8))
    return picture.resize(size, PIL.Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.resize((60, 60)),
        lambda one: one.point(lambda value: value * 1.15),
        lambda one: one.convert("L"),
        lambda one: one.crop((2, 2, 118, 88)),
    ],
    ids=["smaller", "brighter", "grey", "cropped"],
)
def test_changed_photos_are_near_copies(change, tmp_path):
    for seed in range(5):
        photo(seed).save(tmp_path / f"{seed}.png")
        change(photo(seed)).save(tmp_path / f"{seed}_.jpg", quality=40)
    paths = sorted(tmp_path.iterdir())  # 0.png, 0_.jpg, 1.png, ...
    greys = [look.grey for look in findings.look_at_all(paths)]
    limit = findings.contours(greys), findings.NEAR_COPY
    pairs = [np.stack(p[:2]).T for p in findings.similar_pairs(limit)]
    expected = [[i, i + 1] for i in (0, 2, 4, 6, 8)]
    assert np.concatenate(pairs).tolist() == expected


def test_contours_of_a_flat_photo_are_zero():
    greys = np.array([[[7, 7], [7, 7]], [[0, 4], [0, 4]]], np.uint8)
    # Vertical steps 0 0; horizontal steps 4 4 become 1 / sqrt(2) each.
    half = np.sqrt(0.5)
    expected = [[0, 0, 0, 0], [0, 0, half, half]]
    np.testing.assert_allclose(findings.contours(greys), expected)


def test_pairs_are_those_of_the_loop(monkeypatch):
    monkeypatch.setattr(findings, "_TILE", 4)
    draw = np.random.default_rng(0).normal
    one, two = (findings.unit_roots(draw(size=(11, 3))) for _ in range(2))
    found = {
        (i, j): similarity
        for tile in findings.similar_pairs((one, 0.1), (two, 0.2))
        for i, j, similarity in zip(*tile)
    }
    expected = {
        (i, j): two[i] @ two[j]
        for i in range(11)
        for j in range(i + 1, 11)
        if one[i] @ one[j] >= 0.1 and two[i] @ two[j] >= 0.2
    }
    assert found == pytest.approx(expected) and len(expected) > 3


def test_broken_photos_have_a_fault(tmp_path):
    photo_files.write_all(tmp_path)
    names = [*photo_files.REASONS, *photo_files.PHOTOS]
    for name, look in zip(
        names, findings.look_at_all([tmp_path / n for n in names])
    ):
        assert (look.fault or "").startswith(photo_files.REASONS.get(name, ""))
        assert bool(look.fault) == (name in photo_files.REASONS)
