"""The code of docs/library.md runs as it stands, in order."""

import contextlib
import pathlib
import re
import warnings

import numpy as np
import pytest

import tbnets
from tests import fresh
from tests.eager import without_tracing

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "library.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
FRESH = "# In a fresh process."
FIRST_FIT = next(block for block in BLOCKS if ".fit(" in block)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Runs all blocks in one namespace and returns it.

    What is saved was trained in a graph, and is trained on in one, in its
    fresh process. All else runs without: those graphs have tests of their own.
    """
    names = {"__name__": "library_page"}
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("error", "Your input ran out of data")
        patch.chdir(tmp_path_factory.mktemp("page"))
        for number, block in enumerate(BLOCKS):
            if block.startswith(FRESH):
                fresh.run("-c", block, check=True, cwd=pathlib.Path.cwd())
                continue
            exec(compile(block, f"{PAGE}, block {number}", "exec"), names)
            if block == FIRST_FIT:
                stack.enter_context(without_tracing())
    return names


def test_page_has_its_sections():
    assert sum(block.startswith(FRESH) for block in BLOCKS) == 1
    assert len(BLOCKS) == len(re.findall("^```", PAGE.read_text(), re.M)) // 2


def test_network_of_the_page_has_learned_its_pairs(names):
    # Chance: 1 image of 12.
    assert names["metrics"]["text_to_image/recall_at_1"] > 0.5


def test_miner_of_the_page_finds_wrong_captions(names):
    owners = names["caption_to_image"][names["indices"].numpy()]
    assert names["valid"].numpy().all()
    assert (owners != np.arange(12)[:, None]).all()


def test_branch_of_the_page_is_loaded_with_its_network(names):
    assert type(names["other"].image_branch) is names["Residual"]
    assert isinstance(names["other"].ranking_loss, tbnets.TripletLoss)


def test_saved_model_of_the_page_answers_as_the_network(names):
    wanted = names["images"][:2] @ names["texts"][[0, 34]].T
    found = names["served"].similarity(
        names["image_features"][:2],
        [names["captions"][row] for row in (0, 34)],
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
