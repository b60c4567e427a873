"""Tests of where files are written; writing whole is tested by its users."""

import pathlib

from tbnets.files import folder_beside


def test_what_is_computed_from_a_folder_is_kept_beside_it(tmp_path):
    photos = tmp_path / "my photos"
    assert folder_beside(photos) == tmp_path / "my photos.tbnets"
    assert folder_beside(f"{photos}/") == folder_beside(photos)
    assert not folder_beside(photos).exists()


def test_the_users_own_place_comes_first(tmp_path):
    assert folder_beside(tmp_path / "photos", "cache") == pathlib.Path("cache")
    assert folder_beside(tmp_path / "photos", "") == tmp_path / "photos.tbnets"
