"""Tests of where files are written; writing whole is tested by its users."""

import os
import pathlib

import pytest

from tbnets.files import folder_beside
from tbnets.files import readable


def test_what_is_computed_from_a_folder_is_kept_beside_it(tmp_path):
    photos = tmp_path / "my photos"
    assert folder_beside(photos) == tmp_path / "my photos.tbnets"
    assert folder_beside(f"{photos}/") == folder_beside(photos)
    assert not folder_beside(photos).exists()


def test_the_users_own_place_comes_first(tmp_path):
    assert folder_beside(tmp_path / "photos", "cache") == pathlib.Path("cache")
    assert folder_beside(tmp_path / "photos", "") == tmp_path / "photos.tbnets"


def test_a_folder_without_a_name_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "photos" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos" / "sub")
    assert folder_beside("..") == tmp_path / "photos.tbnets"
    assert folder_beside(".") == tmp_path / "photos" / "sub.tbnets"
    assert folder_beside("/") == pathlib.Path("/.tbnets")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("häß lich ✓\u00a0\u202f猫.jpg", "häß lich ✓\u00a0\u202f猫.jpg"),
        ("a\nb\r\t\x1b[2J\x00", "a\ufffdb\ufffd\ufffd\ufffd[2J\ufffd"),
        (os.fsdecode(b"\xff.jpg"), "\ufffd.jpg"),
        ("\u2028\u2029", "\ufffd\ufffd"),
    ],
)
def test_a_name_is_printed_on_one_line(name, shown):
    assert readable(name) == shown
    shown.encode("utf-8")
