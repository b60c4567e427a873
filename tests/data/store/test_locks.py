"""Tests of locks, each with a process that ends without a word."""

import os
import pathlib
import subprocess
import sys

import pytest

import tbnets
from tbnets import files
from tbnets.features import cache as locks
from tbnets.features.cache import FolderLock

HOLDER = """
import os
import sys
from tbnets.features.cache import FolderLock

lock = FolderLock.take(".", ".store.lock", "run_dir")
if sys.argv[1:] and not os.fork():
    os.write(1, b"!")
    os.read(0, 1)  # A child that outlives what held the lock.
    os._exit(0)
if not sys.argv[1:]:
    os.write(1, b"!")
    os.read(0, 1)
os.kill(os.getpid(), 9)
"""


def start_holder(folder, *arguments):
    root = pathlib.Path(tbnets.__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.read(1) == b"!"
    return process


def take(folder):
    return FolderLock.take(folder, ".store.lock", "run_dir")


def test_lock_is_held_until_its_process_is_killed(tmp_path):
    process = start_holder(tmp_path)
    message = f"Received: run_dir={tmp_path}.* process {process.pid} of "
    with pytest.raises(FileExistsError, match=message):
        take(tmp_path)
    process.communicate(b".")
    assert process.returncode == -9
    lock = take(tmp_path)
    assert (
        (tmp_path / ".store.lock").read_text().startswith(f"{os.getpid()} of")
    )
    del lock


def test_child_process_does_not_inherit_the_lock(tmp_path):
    process = start_holder(tmp_path, "fork")
    process.wait()
    assert take(tmp_path)
    process.communicate(b".")


@pytest.mark.parametrize("known_to", ["no system", "no file system"])
def test_lock_succeeds_on_file_systems_without_locks(
    tmp_path, monkeypatch, known_to
):
    def refuse(*_):
        raise OSError(37, "No locks available")

    process = start_holder(tmp_path)
    if known_to == "no system":
        monkeypatch.setattr(files, "fcntl", None)
    else:
        monkeypatch.setattr(files.fcntl, "flock", refuse)
    assert take(tmp_path)
    process.communicate(b".")


def test_waiting_process_gets_the_lock(tmp_path, monkeypatch, capsys):
    process = start_holder(tmp_path)
    monkeypatch.setattr(
        locks.time, "sleep", lambda seconds: process.communicate(b".")
    )
    with locks.written_alone(tmp_path / "store"):
        assert f"process {process.pid} of " in capsys.readouterr().err
