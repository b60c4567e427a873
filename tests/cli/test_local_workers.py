"""Starts processes of plain Python; what they train is none of its business."""

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from tbnets.cli import local_workers, train
from tbnets.errors import UnreachableError
from tbnets.training.distribution import Workers
from tests.refusals import refused

BEGIN = """
import json, os, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
assert len(set(config["cluster"]["worker"])) == 2
"""


@pytest.fixture(autouse=True)
def without_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def run(code):
    # -S: a start in 10 ms.
    local_workers.run_workers(2, [sys.executable, "-S", "-c", BEGIN + code])


def test_output_of_workers_has_their_names(capfd):
    run("print('out', index, os.environ['TF_NUM_INTRAOP_THREADS'])")
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    out, err = capfd.readouterr()
    assert out == f"out 0 {threads}\n"
    assert err == f"worker 1: out 1 {threads}\n"


@pytest.mark.parametrize(
    "dies", ["os.kill(os.getpid(), 9)", "sys.exit('error: no')"]
)
def test_dead_worker_is_named_and_the_others_end(capfd, dies):
    start = time.monotonic()
    with pytest.raises(UnreachableError, match="worker 1"):
        run(f"{dies} if index else time.sleep(60)")
    assert time.monotonic() - start < 50
    if "exit" in dies:
        assert capfd.readouterr().err == "worker 1: error: no\n"


def test_ctrl_c_ends_all_workers(capfd):
    ended = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import signal\n"
            "from tbnets.cli import local_workers\n"
            # What a shell starts in the background ignores it.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "local_workers.run_workers("
            f"2, {[sys.executable, '-S', '-c', _SLEEPS]!r})",
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stdout == "stopped\n"


_SLEEPS = """
import os, signal, time
try:
    if os.environ["TBNETS_LOCAL_WORKER"] == "1":  # All are started.
        time.sleep(0.5)
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    "devices",
    [{}, {"local_workers": 2}, {"distribute": "mirrored", "num_replicas": 3}],
)
def test_resume_command_names_the_number_of_workers(
    monkeypatch, capsys, devices
):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.loop, "fit", stopped)
    session = types.SimpleNamespace(workers=Workers(), run_dir="runs/first")
    with pytest.raises(KeyboardInterrupt):
        train.fit_or_stop(session, None, train.Options(resume=True, **devices))
    told = "".join(f" --{name}={value}" for name, value in devices.items())
    line = f"--resume --run_dir=runs/first{told}\n"
    assert capsys.readouterr().err.endswith(line)
    session.run_dir = "my runs/first"  # As it is typed.
    with pytest.raises(KeyboardInterrupt):
        train.fit_or_stop(session, None, train.Options(resume=True))
    line = "--resume '--run_dir=my runs/first'\n"
    assert capsys.readouterr().err.endswith(line)


def test_worker_ends_with_its_parent():
    code = (
        "from tbnets.cli import local_workers\n"
        "import time\n"
        "local_workers.end_with_parent()\n"
        "time.sleep(60)"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE
    )
    worker.stdin.close()  # As the system does where its parent was killed.
    assert worker.wait(30) == 1


@pytest.mark.parametrize(
    "other, name",
    [
        ({"num_replicas": 2}, "--num_replicas"),
        ({"distribute": "mirrored"}, "--local_workers"),
    ],
)
def test_contradicting_device_flags_raise_errors(other, name):
    with refused(name):
        train._start_workers(train.Options(local_workers=2, **other), None)


def test_worker_process_starts_no_workers(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    with refused("--local_workers"):
        local_workers.run_workers(2)
