"""The processes of `tests/fresh.py` are what the tests take them for."""

import json
import signal
import time

from tests import fresh

ABOUT = """
import json
import os
import sys

import tensorflow as tf
from tensorflow.python.eager import context

print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "folder": os.getcwd(),
    "variable": os.environ["TBNETS_FRESH"],
    "tbnets": "tbnets" in sys.modules,
    "ran": context.context()._initialized,
}))
print("a warning", file=sys.stderr)
print(int(tf.reduce_sum(tf.ones((2, 3)))))
sys.exit(int(sys.argv[1]))
"""


def test_fresh_process_has_imported_tensorflow_and_run_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TBNETS_FRESH", "set after the server has started")
    script = tmp_path / "script.py"
    script.write_text(ABOUT)
    for program, name in ((("-c", ABOUT), "-c"), ((script,), str(script))):
        ended = fresh.run(*program, "3", "b", cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (3, "a warning\n")
        about, total = ended.stdout.splitlines()
        assert total == "6"
        assert json.loads(about) == {
            "argv": [name, "3", "b"],
            "name": "__main__",
            "folder": str(tmp_path),
            "variable": "set after the server has started",
            "tbnets": False,
            "ran": False,
        }


def test_fresh_process_ends_as_python_does():
    ended = fresh.run("-c", "import sys; sys.exit('error: a line')")
    assert (ended.returncode, ended.stderr) == (1, "error: a line\n")
    ended = fresh.run("-c", "raise TypeError('a bug')")
    assert ended.returncode == 1
    assert ended.stderr.endswith("TypeError: a bug\n")
    assert "Traceback" in ended.stderr


def test_fresh_process_can_be_killed(tmp_path):
    code = (
        "import pathlib, sys, time, tensorflow as tf\n"
        "tf.function(lambda: tf.range(9))()\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "time.sleep(600)"
    )
    process = fresh.start("-c", code, tmp_path / "there")
    while not (tmp_path / "there").exists():
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_fresh_process_runs_steps_without_tracing_where_asked():
    code = "import tensorflow as tf; print(tf.config.functions_run_eagerly())"
    for eagerly in (False, True):
        ended = fresh.run("-c", code, eagerly=eagerly)
        assert ended.stdout == f"{eagerly}\n"
