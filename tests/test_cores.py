"""Tests of how many cores are used."""

import os
import pathlib

import pytest

from tbnets.startup import usable_cores

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="no affinity on this system"
)
def test_cores_that_the_process_may_not_use_do_not_count():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == len(before)


@pytest.mark.parametrize("number, expected", [(None, 1), (3, 3)])
def test_a_system_without_affinity(monkeypatch, number, expected):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: number)
    assert usable_cores() == expected


def test_nothing_else_counts_cores():
    sources = [*ROOT.glob("tbnets/**/*.py"), *ROOT.glob("tools/*.py")]
    counting = [p.name for p in sources if "cpu_count" in p.read_text("utf-8")]
    assert counting == ["startup.py"]
