"""Runs the cells of each notebook in order."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
SMALL = {", 64)": ", 32)", "(64, 64, 3)": "(32, 32, 3)"}
SMALL |= {"epochs=12": "epochs=8"}
"""Smaller photos and fewer epochs, which take a sixth of the time."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the code of a notebook and returns its names.

    The notebooks share a working folder.
    """

    def run(name):
        names = {"__name__": name}
        text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "code":
                code = "".join(cell["source"])
                for old, new in SMALL.items():
                    code = code.replace(old, new)
                exec(compile(code, f"{name}, cell {number}", "exec"), names)
        return names

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebooks"))
        yield run


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
