"""Tests of files: JSON that is read, and files that are written whole."""

import os
import pathlib
import stat
import subprocess
import sys

import pytest

from tbnets import files
from tbnets.errors import UserError
from tbnets.files import (
    CheckedFile,
    ProblemError,
    folder_beside,
    parse_json,
    readable,
)

KILLED = """
import os
import sys
from tbnets import files

def killed(place):
    os.write(1, b"!")
    if sys.argv[2] == "waits":
        sys.stdin.read()
    os._exit(9)

if sys.argv[1] == "file":
    files.write_atomically("a.txt", lambda file: killed("a.txt"))
with files.new_folder("a.txt") as folder:
    (folder / "part").write_text("half")
    killed(folder)
"""


def start_writer(folder, kind, ends="dies"):
    """Starts a process that ends in the middle of a write."""
    root = pathlib.Path(files.__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, kind, ends],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.read(1) == b"!"
    return process


def write(path, text):
    files.write_text(path, text)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_next_write_removes_files_of_a_killed_writer(tmp_path, kind):
    start_writer(tmp_path, kind).communicate()
    [left] = os.listdir(tmp_path)
    assert files.is_partial(left)
    others = ["a.partial", ".a.partial", ".a.0123456789ag.partial"]
    for name in others:
        (tmp_path / name).touch()
    write(tmp_path / "b.txt", "whole")
    assert {*os.listdir(tmp_path)} == {*others, "b.txt"}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_files_of_a_running_writer_are_kept(tmp_path, kind):
    process = start_writer(tmp_path, kind, "waits")
    with files.new_folder(tmp_path / "folder"):
        write(tmp_path / "b.txt", "whole")
    assert len(os.listdir(tmp_path)) == 3
    process.communicate()
    with files.new_folder(tmp_path / "other"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["b.txt", "folder", "other"]


def test_two_writers_of_one_file_use_different_names(tmp_path):
    path, inner = tmp_path / "a.txt", []

    def outer(file):
        file.write(b"outer")
        write(path, "inner")
        inner.append(path.read_text())

    files.write_atomically(path, outer)
    assert inner == ["inner"] and path.read_text() == "outer"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    called = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*given, name=name, real=real):
            called.append(name)
            return real(*given)

        monkeypatch.setattr(os, name, noted)
    write(tmp_path / "a.txt", "whole")
    assert called == ["fsync", "replace"]


def test_pipes_are_written_and_not_replaced(tmp_path):
    """A device or a pipe, which a rename would replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, "hello")
    assert os.read(reader, 9) == b"hello" and pipe.is_fifo()
    os.close(reader)


def test_a_folder_appears_when_it_is_complete(tmp_path):
    model = tmp_path / "model"
    with pytest.raises(KeyError), files.new_folder(model):
        raise KeyError
    with files.new_folder(model) as folder:
        write(folder / "card", "new")
        assert not model.exists()
    assert (model / "card").read_text() == "new"
    with pytest.raises(OSError), files.new_folder(model):
        pass
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("rights", [0o700, 0o750, 0o755])
def test_cache_next_to_a_folder_has_its_permissions(tmp_path, rights):
    photos = tmp_path / "photos"
    photos.mkdir()
    photos.chmod(rights)
    files.make_folder_of(photos, folder_beside(photos))
    place = folder_beside(photos)
    assert stat.S_IMODE(place.stat().st_mode) == rights
    files.make_folder_of(photos, tmp_path / "mine" / "cache")
    plain = (tmp_path / "mine").stat().st_mode
    assert (tmp_path / "mine" / "cache").stat().st_mode == plain


def test_default_cache_is_next_to_the_folder(tmp_path, monkeypatch):
    (tmp_path / "photos" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos" / "sub")
    beside = tmp_path / "photos.tbnets"
    for name in (tmp_path / "photos", f"{tmp_path}/photos/", ".."):
        assert folder_beside(name) == folder_beside(name, "") == beside
    assert folder_beside(".") == tmp_path / "photos" / "sub.tbnets"
    assert folder_beside("/") == pathlib.Path("/.tbnets")
    assert folder_beside("..", "cache") == pathlib.Path("cache")
    assert not beside.exists()


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


@pytest.mark.parametrize(
    "content, place",
    [
        (b'{"a": 1,\n"b": 2,\n"a": 3}', "x.json:"),
        (b'[{"x": {"b": 1, "c": 2, "b": 3}}]', "x.json:"),
        (b"[" * 100_000, "x.json:"),
        (b'{"a": ' * 100_000, "x.json:"),
        (b"9" * 5000, "x.json:"),
        (b'"\xff"', "x.json:"),
        (b"{\n1", "x.json:2:"),
    ],
)
def test_invalid_json_raises_an_error_with_its_place(tmp_path, content, place):
    with pytest.raises(ValueError):
        parse_json(content)
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=place):
        CheckedFile(path).json()
    problems = []
    assert CheckedFile(path, problems).json() is None
    assert [place in str(one) for one in problems] == [True]


def test_cp1252_is_read_only_where_allowed(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\ncaf\xe9\n")
    with pytest.warns(UserWarning, match="x.txt:2: .* cp1252"):
        lines = CheckedFile(path).lines(may_be_cp1252=True)
    assert lines == (["a", "caf\u00e9"], True)
    with pytest.raises(ProblemError, match="x.txt:2: .* 0xe9"):
        CheckedFile(path).lines()
