import numpy as np
import PIL.Image
import pytest

from tbnets.data import duplicates
from tests import photo_files


def photo(seed, size=(120, 90)):
    """Returns a picture of soft spots, about as smooth as a photo."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 8, 3))
    picture = PIL.Image.fromarray(cells.astype(np.uint8))
    return picture.resize(size, PIL.Image.Resampling.BICUBIC)


CHANGES = {
    "smaller": lambda one: one.resize((60, 60)),
    "brighter": lambda one: one.point(lambda value: value * 1.15),
    "grey": lambda one: one.convert("L"),
    "cropped": lambda one: one.crop((2, 2, 118, 88)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_photos_are_near_copies(change, tmp_path):
    for seed in range(5):
        photo(seed).save(tmp_path / f"{seed}.png")
        CHANGES[change](photo(seed)).save(tmp_path / f"{seed}_.jpg", quality=40)
    paths = sorted(tmp_path.iterdir())  # 0.png, 0_.jpg, 1.png, ...
    rows = duplicates.contours(
        [look.grey for look in duplicates.look_at_all(paths)]
    )
    limit = rows, duplicates.NEAR_COPY
    pairs = [np.stack(p[:2]).T for p in duplicates.similar_pairs(limit)]
    assert np.concatenate(pairs).tolist() == [
        [i, i + 1] for i in (0, 2, 4, 6, 8)
    ]


def test_contours_of_a_flat_photo_are_zero():
    greys = np.array([[[7, 7], [7, 7]], [[0, 4], [0, 4]]], np.uint8)
    # Vertical steps 0 0; horizontal steps 4 4 become 1 / sqrt(2) each.
    half = np.sqrt(0.5)
    expected = [[0, 0, 0, 0], [0, 0, half, half]]
    np.testing.assert_allclose(duplicates.contours(greys), expected)


def test_pairs_are_those_of_the_loop(monkeypatch):
    monkeypatch.setattr(duplicates, "_TILE", 4)
    draw = np.random.default_rng(0).normal
    one, two = (duplicates.unit_roots(draw(size=(11, 3))) for _ in range(2))
    found = {
        (i, j): similarity
        for tile in duplicates.similar_pairs((one, 0.1), (two, 0.2))
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
        names, duplicates.look_at_all([tmp_path / n for n in names])
    ):
        assert (look.fault or "").startswith(photo_files.REASONS.get(name, ""))
        assert bool(look.fault) == (name in photo_files.REASONS)
