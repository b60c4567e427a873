"""Every benchmark runs and prints its rows; what it times is not judged."""

import re

import numpy as np
import pytest
from benchmarks import arrays, fisher_vectors, timing

from tbnets.serving import zoo
from tests import saved_models, verbs
from tests.extras import colour_page
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo

SMALL = (
    "--embedding_dim=4",
    "--hidden_dim=5",
    "--repeats=1",
    "--num_images=2",
    "--num_photos=2",
    "--num_captions=3",
    f"--cnn={tiny_cnn.NAME}",
)
NUM_ROWS = {
    "loss": 6,
    "train_step": 4,
    "region_step": 3,
    "tree_lstm": 3,
    "evaluation": 2,
    "extraction": 2,
    "search": 4,
    "fisher_vectors": 4,
    "batch_sizes": 14,
    "index": 12,
    "mapped": 0,
}


class Searched(colour_page.Colours):
    """Has the parts of a zoo model that a search uses."""

    made_by = {"cnn": tiny_cnn.NAME, "image_size": 16, "layers": ["last"]}
    metadata = {"metadata": {"image_features_made_by": made_by}}
    signatures = {
        "embed_text": lambda captions: {"embeddings": captions},
        "embed_image": lambda image_bytes: {"embeddings": image_bytes},
    }

    def embed_features(self, rows):
        return rows


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """A zoo of one model, whatever the name."""
    model = Searched(tmp_path / "model")
    monkeypatch.setattr(zoo, "open_model", lambda name: model)


@pytest.mark.parametrize("name", NUM_ROWS)
def test_benchmark_prints_its_rows(
    name, tmp_path, eagerly, searched, monkeypatch
):
    # Processes would each import TensorFlow.
    monkeypatch.setattr(timing, "in_another_process", lambda call, *x: call(*x))
    monkeypatch.setattr(fisher_vectors, "WORD_DIM", 4)
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(photo(i))
    with tiny_cnn.known(), saved_models.loaded_once():
        line = f"--benchmark={name}", *SMALL, f"--images={tmp_path}"
        text = verbs.printed("benchmark", *line)
    # A row has a name, a time and a ratio.
    rows = re.findall(r"^ *\S.* {2,}\d+\.\d+(?: s)? +\d+\.\d+", text, re.M)
    assert len(rows) == NUM_ROWS[name], text


def test_recall_sum_of_ranks_known():
    # Both images find their caption first, captions theirs second.
    owners = np.array([0, 1])
    captions, photos = np.array([[0, 1], [1, 0]]), np.array([[1, 0], [0, 1]])
    assert arrays.recall_sum(owners, captions, photos) == 500
