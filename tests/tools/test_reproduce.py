"""Tests of the page of all results, and of what it is made from."""

import json
import shutil

import pytest
from reproducing import checks, measured, recording

from tbnets.cli import run_line, train
from tbnets.tasks.settings.flag import CommandLine, flags_of
from tbnets.tasks.settings.records import write_settings
from tbnets.tasks.settings.settings import ALL
from tests import verbs
from tests.refusals import refused

FLAGS = [*ALL.values(), *flags_of(train.Options)]


@pytest.fixture(scope="module")
def results():
    return measured.read()


@pytest.fixture
def pages(tmp_path):
    """A folder with copies of all pages, and of the names of flagfiles."""
    for path in measured.ROOT.glob("docs/*.md"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "docs")
    shutil.copytree(measured.ROOT / "configs", tmp_path / "configs")
    shutil.copy(measured.ROOT / "README.md", tmp_path)
    return tmp_path


def test_every_number_on_the_pages_has_a_source():
    told = verbs.ask("reproduce", "--check")
    assert told == ("0 numbers that no file explains\n", "", "")


@pytest.mark.parametrize(
    ("page", "number", "changed"),
    [
        ("README.md", "22.7 15.1", "22.8 15.1"),
        ("docs/results.md", "22.7 45.4 57.4", "22.7 45.4 57.5"),
        ("docs/ablation.md", "| 252.8 |", "| 253.8 |"),
        ("docs/reproduction_tables.md", "33.5 61.7 73.6", "33.5 61.7 73.7"),
        ("configs/scenes_fne.flags", "70.8", "70.9"),
    ],
)
def test_a_changed_number_is_found(results, pages, page, number, changed):
    path = pages / page
    text = path.read_text("utf-8")
    assert number in text
    path.write_text(text.replace(number, changed, 1), "utf-8")
    found = checks.findings(results, pages)
    assert len(found) == 1 and found[0].startswith(page), found


def finished_run(folder, seed, recall, *flags):
    """Writes what a finished run of quickstart leaves of its results."""
    line = CommandLine(
        ["--flagfile=quickstart", f"--seed={seed}", *flags], FLAGS
    )
    settings = run_line.resolve(line).settings
    folder.mkdir()
    write_settings(settings, folder)
    report = {
        "best_epoch": 12,
        "epochs": settings.epochs,
        "train_seconds": 60.0,
        "dev": {"recall_sum": 200.0},
        "test": {"image_to_text/recall_at_1": recall, "recall_sum": 180.0},
        "command": "tools/train.py --flagfile=configs/quickstart.flags",
        "versions": {"tensorflow": "2.21.0"},
    }
    (folder / "metrics.json").write_text(json.dumps(report))
    return folder


@pytest.fixture
def record(tmp_path):
    """Returns a function that records runs; it returns the file's content."""
    target = tmp_path / "measured"
    (target / "pages").mkdir(parents=True)
    (target / "published.json").write_text("[]")
    (target / "rows.json").write_text("{}")

    def call(*folders, name="", cpu="fast"):
        path = recording.record(folders, name, cpu, target)
        return json.loads(path.read_text()), measured.read(target).recorded

    return call


def test_recorded_runs_give_the_numbers(record, tmp_path):
    """Means over seeds: (0.125 + 0.25) / 2 = 0.1875, a half goes up."""
    first = finished_run(tmp_path / "a", 0, 0.125)
    second = finished_run(tmp_path / "b", 1, 0.25)
    content, kept = record(first, second)
    assert content["seeds"]["1"]["test"]["image_to_text/recall_at_1"] == 0.25
    row = kept["quickstart"]
    assert (row.configuration, row.flags) == ("quickstart", "")
    assert (row.seeds, row.epochs, row.cpu) == ((0, 1), (12, 12), "fast")
    assert row.values == {
        "test/image_to_text/recall_at_1": "18.8",
        "test/recall_sum": "180.0",
        "dev/recall_sum": "200.0",
    }
    third = finished_run(tmp_path / "c", 2, 0.3)
    assert record(third)[1]["quickstart"].seeds == (0, 1, 2)
    assert record(third, cpu="slow")[1]["quickstart"].seeds == (2,)
    change(third, versions={"kernels": "oneDNN"})
    assert record(third)[1]["quickstart"].cpu == "fast, oneDNN"
    # The kernels of the first run are not known.
    assert record(third, first)[1]["quickstart"].cpu == "fast"


def change(run, **changes):
    """Changes what `metrics.json` of a run says; None takes it out."""
    path = run / "metrics.json"
    report = json.loads(path.read_text()) | changes
    kept = {name: value for name, value in report.items() if value is not None}
    path.write_text(json.dumps(kept))


def test_run_with_changed_flags_is_a_new_row(record, tmp_path):
    run = finished_run(tmp_path / "a", 0, 0.1, "--margin=0.3")
    with refused("--record"):
        record(run)
    _, kept = record(run, name="quickstart_wide")
    assert kept["quickstart_wide"].flags == "--margin=0.3"
    with refused("--name"):
        record(run, name="../wide")
    with refused("--record"):
        record(run, finished_run(tmp_path / "b", 1, 0.1))
    (run / "metrics.json").unlink()
    with refused("--record"):
        record(run, name="quickstart_wide")


def commands_of(name, *flags):
    out, _, failure = verbs.ask("reproduce", f"--run={name}", *flags)
    assert failure == ""
    return out.splitlines()


def test_run_prints_the_commands_of_a_row():
    name = "flickr8k_tfidf_nonlinear_sampling"
    *trained, recorded = commands_of(name, "--seeds=0,1")
    assert trained == [
        "tbnets train --flagfile=configs/flickr8k_tfidf.flags "
        f"--text_to_text_weight=0 --seed={seed} --run_dir=runs/{name}_{seed}"
        for seed in (0, 1)
    ]
    assert recorded == (
        f"python tools/reproduce.py --record=runs/{name}_0,runs/{name}_1 "
        f"--name={name}"
    )
