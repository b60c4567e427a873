"""Tests of how tools start and end."""

import os
import pathlib
import platform
import subprocess
import sys
import threading
import warnings

import pytest

from tbnets import startup
from tbnets.data.captions import read_captions

ROOT = pathlib.Path(__file__).parent.parent
KERNELS = "TF_ENABLE_ONEDNN_OPTS"

# What a user sees of a tool is what a process prints, without TensorFlow.
TOOL = """
import sys

from tbnets import startup
from tbnets.data import captions
from tbnets.errors import InputError
from tbnets.files import write_json


def work():
    kind = sys.argv[1]
    if kind == "ours":
        captions.read_captions("nonsense", "x", "train")
    elif kind == "file":
        write_json("/nowhere/at/all.json", {})
    elif kind == "json":
        import json
        json.loads("{")
    elif kind == "type":
        "a" + 1
    elif kind == "nobody reads":
        raise BrokenPipeError(32, "Broken pipe")
    elif kind == "interrupt":
        raise KeyboardInterrupt
    elif kind == "lost interrupt":
        import os
        import signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except:  # A library that drops what it does not know.
            pass
        startup.raise_if_interrupted()
    elif kind == "turned interrupt":
        import os
        import signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:  # So does a constructor of TensorFlow.
            raise TypeError("no context")
    elif kind == "tool":
        raise InputError("`--flag` must be set.")
    elif kind == "kernels":
        print(startup.kernels())
    elif kind == "tensorflow":  # Late, as in a function of a command.
        import importlib.util
        assert importlib.util.find_spec("tensorflow")  # As a library may ask.
        import tensorflow
        import tensorflow.inner
        assert tensorflow.loaded
    print("done")


startup.run(work)
"""


@pytest.fixture(autouse=True)
def default_level(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def write_to_descriptor():
    os.write(2, b"noise from a library\n")


def test_native_noise_is_hidden(capfd):
    with startup.quiet_tensorflow():
        write_to_descriptor()
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"


def test_noise_is_shown_when_the_import_fails(capfd):
    with pytest.raises(ImportError, match="libcuda"):
        with startup.quiet_tensorflow():
            write_to_descriptor()
            raise ImportError("libcuda")
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "noise from a library\nafterwards\n"


def test_threads_wait_for_each_other(capfd):
    left = []

    def other():
        with startup.quiet_tensorflow(), startup.quiet_tensorflow():
            left.append("other")

    thread, before = threading.Thread(target=other), list(warnings.filters)
    with startup.quiet_tensorflow():
        thread.start()
        thread.join(0.02)
        left.append("first")
    thread.join()
    os.write(2, b"afterwards\n")
    assert left == ["first", "other"]
    assert capfd.readouterr().err == "afterwards\n"
    assert warnings.filters == before


def test_a_program_may_have_no_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with startup.quiet_tensorflow():
        pass


@pytest.mark.parametrize("level", ["0", "1", "2"])
def test_a_user_who_asks_for_messages_gets_them(capfd, monkeypatch, level):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with startup.quiet_tensorflow():
        write_to_descriptor()
    assert capfd.readouterr().err == "noise from a library\n"


def test_no_descriptor_is_left_open():
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    for _ in range(3):
        with startup.quiet_tensorflow():
            pass
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    assert after == before


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "tool.py"
    path.write_text(TOOL)
    return path


@pytest.mark.parametrize(
    "kind, code, last_line, traceback",
    [
        ("fine", 0, "", False),
        ("ours", 1, "error: `", False),
        ("file", 1, "error: /nowhere/at/all.json could", False),
        ("tool", 1, "error: `--flag` must be set.", False),
        ("json", 1, "This is a bug in tbnets. Please report", True),
        ("type", 1, "This is a bug in tbnets. Please report", True),
        ("interrupt", 130, "", False),
        ("nobody reads", 141, "", False),
        ("lost interrupt", 130, "", False),
        ("turned interrupt", 130, "", False),
    ],
)
def test_a_program_ends_as_the_error_deserves(
    tool, kind, code, last_line, traceback
):
    ended = subprocess.run(
        [sys.executable, str(tool), kind],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    assert ended.returncode == code, ended.stderr
    assert (lines[-1] if lines else "").startswith(last_line)
    assert ("Traceback" in ended.stderr) == traceback
    assert ended.stdout == ("done\n" if code == 0 else "")
    if not traceback and last_line:
        assert len(lines) == 1


def test_a_program_chooses_kernels_before_it_works(tool):
    """On this processor, by an environment that says nothing of them."""
    env = {k: v for k, v in os.environ.items() if k != KERNELS}
    ended = subprocess.run(
        [sys.executable, str(tool), "kernels"],
        capture_output=True,
        text=True,
        check=True,
        env={**env, "PYTHONPATH": str(ROOT)},
    )
    told = pathlib.Path("/proc/cpuinfo")
    told = told.read_text().split() if told.exists() else ()
    name = "oneDNN" if {"avx2", "fma"} <= {*told} else "TensorFlow's choice"
    assert ended.stdout == f"{name}\ndone\n"


def no_file():
    return open("/nowhere/at/all")


def no_folder():
    return os.listdir("/nowhere/at/all")


def disk_full():
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")


def number():
    return int("four")


def key():
    return {}["text"]


def bad_descriptor():
    return os.write(-1, b"x")


def import_missing():
    import a_module_that_is_not_there  # noqa: F401


def plain_error():
    raise ValueError("`x` must be y.")


def of_this_package():
    read_captions("nonsense", "x", "train")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of_this_package, True),
        (no_file, True),
        (no_folder, True),
        pytest.param(
            disk_full,
            True,
            marks=pytest.mark.skipif(
                not os.path.exists("/dev/full"), reason="there is no /dev/full"
            ),
        ),
        (number, False),
        (key, False),
        (bad_descriptor, False),
        (import_missing, False),
        (plain_error, False),
    ],
)
def test_what_is_for_the_user(function, expected):
    with pytest.raises(Exception) as caught:
        function()
    assert startup.is_for_the_user(caught.value) == expected


@pytest.mark.parametrize(
    ("num_cores", "expected"), [(1, 1), (2, 1), (4, 1), (5, None), (64, None)]
)
def test_few_cores_share_one_arena(num_cores, expected):
    assert startup.most_arenas(num_cores) == expected


# A block of 100 MiB is written, freed and asked for again: are its pages new?
# A thread's own arena would be too small for it: there is one for a few cores.
BLOCKS = """
import ctypes
import os
import resource
import sys
import threading

from tbnets import startup

os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])
startup.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
size = 100 * 2**20


def work():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = ctypes.c_void_p(libc.malloc(size))
        libc.memset(block, 1, size)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        libc.free(block)
    print(faults)


if sys.argv[1] == "thread":
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the C library is not glibc"
)
@pytest.mark.parametrize(
    "chosen, kept", [({}, True), ({"MALLOC_TOP_PAD_": "0"}, False)]
)
@pytest.mark.parametrize("where", ["main", "thread"])
def test_freed_memory_is_used_again(where, chosen, kept):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    env.update(chosen, PYTHONPATH=str(ROOT))
    faults = subprocess.run(
        [sys.executable, "-c", BLOCKS, where],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    ).stdout
    assert (int(faults) < 10) == kept, faults


@pytest.mark.parametrize(
    ("flags", "chosen", "expected"),
    [
        ("sse2 fma avx2", None, "1"),
        ("sse2 avx avx2", None, None),
        (None, None, None),  # No such file.
        ("sse2 fma avx2", "0", "0"),
    ],
)
def test_kernels_are_chosen_by_the_processor(
    tmp_path, monkeypatch, flags, chosen, expected
):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delenv(KERNELS, raising=False)
    if chosen:
        monkeypatch.setenv(KERNELS, chosen)
    processor = tmp_path / "cpuinfo"
    if flags:
        processor.write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(os, "environ", {**os.environ})
    startup.choose_kernels(processor)
    assert os.environ.get(KERNELS) == expected
    names = {"1": "oneDNN", "0": "TensorFlow", None: "TensorFlow's choice"}
    assert startup.kernels() == names[expected]
    monkeypatch.delenv(KERNELS, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    startup.choose_kernels(processor)  # Too late.
    assert KERNELS not in os.environ


def test_a_late_import_of_tensorflow_prints_nothing(tool, tmp_path):
    noisy = "import os; os.write(2, b'cudart_stub.cc'); loaded = True"
    for name in ("__init__", "inner"):
        path = tmp_path / f"tensorflow/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(noisy if name == "__init__" else "")
    ended = subprocess.run(
        [sys.executable, str(tool), "tensorflow"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
