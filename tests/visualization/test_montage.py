"""Tests of contact sheets, heat pictures and cards."""

import numpy as np
import PIL.Image
import PIL.ImageColor
import pytest

from tbnets.visualization import montage

IDS = ["a.png", "b.png", "c.png"]
COLOURS = {"a.png": (10, 20, 200), "b.png": (200, 20, 200), "c.png": (9, 99, 9)}
GREEN = PIL.ImageColor.getrgb(montage.HIT)
RED = PIL.ImageColor.getrgb(montage.MISS)


@pytest.fixture
def folder(tmp_path):
    for name, colour in COLOURS.items():
        PIL.Image.new("RGB", (8, 8), colour).save(tmp_path / name)
    return tmp_path


def frame_of(sheet, name):
    """Returns the colour right above a photo that is drawn once."""
    pixels = np.asarray(sheet)
    rows, columns = np.nonzero((pixels == COLOURS[name]).all(axis=-1))
    return tuple(pixels[rows.min() - 1, columns.min()].tolist())


def test_known_hits_are_green_and_known_misses_red(folder):
    def draw(hits):
        ranked = np.array([[2, 0]]), np.array([[0.5, 0.25]]), np.zeros((1, 2))
        return montage.draw_montage(
            ["a dog"], IDS, ranked, folder, hits, "green"
        )

    sheet = draw([{1, 2}])
    assert frame_of(sheet, "c.png") == GREEN
    assert frame_of(sheet, "a.png") == RED
    # Below stands what the frames mean.
    legend = np.asarray(sheet)[-montage.LEGEND_HEIGHT :]
    assert (legend != 255).any()
    for sheet in map(draw, (None, [None])):
        assert frame_of(sheet, "c.png") == (255,) * 3
        assert frame_of(sheet, "a.png") == (255,) * 3


def test_a_query_photo_is_at_the_left(folder):
    numbers = np.zeros((1, 11), int)
    ranked = numbers, numbers + 0.5, numbers
    sheet = montage.draw_montage([folder / "b.png"], IDS, ranked, folder)
    line = montage.PHOTO_SIZE + montage.LABEL_HEIGHT + montage.MARGIN
    assert sheet.height == montage.MARGIN + 2 * line  # Of ten photos and one.
    pixels = np.asarray(sheet)
    assert tuple(pixels[montage.MARGIN, montage.MARGIN]) == COLOURS["b.png"]
    assert frame_of(sheet, "a.png") == (255, 255, 255)


def test_photos_stay_readable_under_the_heat():
    colours = np.tile(np.uint8([200, 100, 0]), (40, 60, 1))
    photo = PIL.Image.fromarray(colours)
    heat = np.zeros((4, 6), np.float32)
    heat[0, 0] = 1
    shaded = montage.shade(photo, heat)
    np.testing.assert_array_equal(shaded[0, 0], colours[0, 0])
    grey = photo.convert("L").getpixel((0, 0))
    np.testing.assert_array_equal(shaded[-1, -1], [grey // 2] * 3)
    long, short = (
        montage.explanation(photo, heat, title, "1    cat.jpg")
        for title in ("a dog" * 20, "a dog")
    )
    assert long.shape[1] == short.shape[1] == 2 * montage.PHOTO_SIZE


def test_missing_and_broken_photos_are_grey(folder):
    (folder / "d.png").write_bytes(b"no photo")
    (folder / "link.png").symlink_to(folder / "a.png")
    photo = montage.draw_photo(folder, "link.png", 6)
    assert photo.getcolors() == [(36, COLOURS["a.png"])]
    for name in ("absent", "d.png", "../outside.png"):
        photo = montage.draw_photo(folder, name, 6)
        assert photo.size == (6, 6)
        assert photo.getcolors() == [(36, (238, 238, 238))]
