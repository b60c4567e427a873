"""Runs the cells of each notebook in order."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the working folder that the notebooks share."""
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture
def run(folder, monkeypatch):
    """Runs the code of a notebook and returns its names."""
    monkeypatch.chdir(folder)

    def run(name):
        names = {"__name__": name}
        text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "code":
                code = "".join(cell["source"])
                exec(compile(code, f"{name}, cell {number}", "exec"), names)
        return names

    return run


def test_photos_are_searched(run):
    names = run("search_your_photos")
    assert [len(found) for found in names["answers"]] == [4, 4]


def test_a_network_is_trained_and_served(run):
    names = run("train_on_your_data")
    # Chance: 2.5 + 12.5 + 25 per cent in each direction.
    assert names["metrics"]["recall_sum"] > 120
    assert names["served"].takes_captions


def test_phrases_are_found(run):
    pytest.importorskip("cv2")
    names = run("find_phrases")
    assert names["metrics"]["phrase_to_region/recall_at_1"] > 0.7
