"""Tests of how tools start and end, and of the cores that they use."""

import contextlib
import errno
import os
import pathlib
import subprocess
import sys

import pytest

from tbnets import startup

ROOT = pathlib.Path(__file__).parent.parent
KERNELS = "TF_ENABLE_ONEDNN_OPTS"

# What a user sees of a tool is what a process prints, without TensorFlow.
TOOL = """
import os, signal, sys
from tbnets import startup
from tbnets.errors import InputError
from tbnets.files import write_json


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def lost_interrupt():
    try:
        interrupt()
    except:  # A library that drops what it does not know.
        pass
    startup.raise_if_interrupted()


def turned_interrupt():
    try:
        interrupt()
    except KeyboardInterrupt:  # So does a constructor of TensorFlow.
        raise TypeError("no context")


def delayed_interrupt():
    with startup.delayed_interrupt():
        interrupt()
        print("finished the step")
        startup.raise_if_interrupted()
        print("began another step")


def interrupt_until_the_end():
    with startup.delayed_interrupt():
        interrupt()
        print("finished the step")


def second_interrupt():
    with startup.delayed_interrupt():
        interrupt()
        print("finished the step")
        interrupt()
        print("ignored the second interrupt")


def misuse():
    raise InputError("`--flag` must be set.")


def unread():
    raise BrokenPipeError(32, "Broken pipe")


def tensorflow():  # Late, as in a function of a command.
    import importlib.util
    assert importlib.util.find_spec("tensorflow")  # As a library may ask.
    import tensorflow, tensorflow.inner
    assert tensorflow.loaded


def work():
    {
        "fine": lambda: None,
        "file": lambda: write_json("/nowhere/at/all.json", {}),
        "type": lambda: "a" + 1,
    }.get(sys.argv[1], globals().get(sys.argv[1]))()
    print("done")


startup.run(work)
"""


@pytest.fixture(autouse=True)
def default_level(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.mark.parametrize(
    "level, fails, shown",
    [
        ("3", False, False),
        ("3", True, True),
        ("2", False, True),
    ],
)
def test_native_messages_are_shown_if_an_import_fails(
    capfd, monkeypatch, level, fails, shown
):
    """It explains an import that fails, and is shown to who asks for it."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with pytest.raises(ImportError) if fails else contextlib.nullcontext():
        with startup.quiet_tensorflow():
            os.write(2, b"noise\n")
            if fails:
                raise ImportError
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "noise\n" * shown + "afterwards\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that runs `TOOL`."""
    tool = tmp_path_factory.mktemp("tools") / "tool.py"
    tool.write_text(TOOL)

    def run(*words, path=ROOT):
        env = {k: v for k, v in os.environ.items() if k != KERNELS}
        return subprocess.run(
            [sys.executable, str(tool), *words],
            capture_output=True,
            text=True,
            env={**env, "PYTHONPATH": str(path)},
        )

    return run


@pytest.mark.parametrize(
    "code, not_imported",
    [
        ("import tbnets; dir(tbnets); tbnets.PRESETS", "numpy absl keras"),
        (
            "import tbnets.cli.make_scenes, tbnets.cli.zoo\n"
            "tbnets.cli.overview(), str(tbnets.zoo.describe())",
            "keras tensorflow",
        ),
        ("import tbnets.lite", "keras tensorflow absl h5py matplotlib"),
    ],
)
def test_light_modules_do_not_import_tensorflow(code, not_imported):
    names = f"set({not_imported.split()}) & sys.modules.keys()"
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\n{code}\nprint({names})",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("set()\n", "")


BUG = "This is a bug in tbnets."


@pytest.mark.parametrize(
    "kind, code, last_line",
    [
        ("fine", 0, ""),
        ("file", 1, "error: /nowhere/at/all.json could"),
        ("misuse", 1, "error: `--flag` must be set."),
        ("type", 1, BUG),
        ("interrupt", 130, ""),
        ("lost_interrupt", 130, ""),
        ("turned_interrupt", 130, ""),
        ("unread", 141, ""),
    ],
)
def test_exit_code_and_last_line_of_each_error(run, kind, code, last_line):
    ended = run(kind)
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ("done\n" if code == 0 else "")
    assert ("Traceback" in ended.stderr) == (last_line == BUG)
    assert bool(lines) == bool(last_line) and (
        len(lines) < 2 or last_line == BUG
    )
    assert not lines or lines[-1].startswith(last_line)


@pytest.mark.parametrize(
    "kind", ["delayed_interrupt", "interrupt_until_the_end", "second_interrupt"]
)
def test_first_ctrl_c_of_a_delayed_block_finishes_the_step(run, kind):
    ended = run(kind)
    assert ended.returncode == 130, ended.stderr
    assert (ended.stdout, ended.stderr) == ("finished the step\n", "")


# Stands in for TensorFlow: prints to the terminal, and has the switch of TF32.
TENSORFLOW = """
import os


class config:
    class experimental:
        def enable_tensor_float_32_execution(is_allowed):
            print("TF32", is_allowed)


os.write(2, b"cudart_stub.cc")
loaded = True
"""


def test_a_late_import_of_tensorflow_is_quiet_and_turns_tf32_off(run, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(TENSORFLOW)
    (tmp_path / "tensorflow" / "inner.py").write_text("")
    ended = run("tensorflow", path=f"{tmp_path}:{ROOT}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "TF32 False\ndone\n"


def test_prepare_tensorflow_turns_tf32_off_in_an_imported_tensorflow():
    tf = pytest.importorskip("tensorflow")
    tf.config.experimental.enable_tensor_float_32_execution(True)
    startup.prepare_tensorflow()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOENT, "No such file", "/nowhere/at/all"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EBADF, "Bad file descriptor"), False),
    ],
)
def test_errors_of_files_and_a_full_disk_are_for_the_user(error, expected):
    assert startup.is_for_the_user(error) == expected


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
    monkeypatch.delenv(KERNELS, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    startup.choose_kernels(processor)  # Too late.
    assert KERNELS not in os.environ
