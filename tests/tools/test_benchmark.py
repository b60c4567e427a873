"""Every benchmark runs and prints its rows; what it times is not judged."""

import re

import numpy as np
import pytest
from benchmarks import few_photos, fisher_vectors, timing

from tbnets.serving import zoo
from tests import saved_models, verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.serving import test_embedding_cache

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
    "search": 5,
    "fisher_vectors": 4,
    "batch_sizes": 14,
    "index": 12,
    "mapped": 0,
}


class Searched(test_embedding_cache.MeanColour):
    """What a model of the zoo has that a search asks."""

    made_by = {"cnn": tiny_cnn.NAME, "image_size": 16, "layers": ["last"]}
    metadata = {"metadata": {"image_features_made_by": made_by}}
    takes_photos = True
    vocabulary = None
    signatures = {
        "embed_text": lambda captions: {"embeddings": captions},
        "embed_image": lambda image_bytes: {"embeddings": image_bytes},
    }

    def embed_features(self, rows):
        return rows

    def embed_text(self, texts):
        return np.ones((len(texts), 3), np.float32)

    def has(self, name):
        return False

    def compare(self, first, second):
        return first @ second.T


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


def test_benchmark_of_cells(tmp_path, searched):
    pytest.importorskip("faiss")
    (tmp_path / "a.jpg").write_bytes(photo(1))
    captions = tmp_path / "captions.csv"
    captions.write_text("image,caption,split\na.jpg,a dog,test\n")
    line = f"--images={tmp_path}", f"--captions={captions}", "--repeats=1"
    line += ("--benchmark=approximate",)
    text = verbs.printed("benchmark", *line, "--num_images=40")
    assert "recall@10 of 1 sentences: 1.000" in text
    assert "32: by cells" in text


def test_few_photos_are_a_sample_beside_all_dev_and_test_photos(
    tmp_path, monkeypatch
):
    captions, samples = tmp_path / "all.csv", []
    splits = ["train"] * 6 + ["dev", "test"]
    captions.write_text(
        "image,caption,split\n"
        + "".join(f"{i}.jpg,a dog {i},{x}\n" for i, x in enumerate(splits))
    )

    def train(folder, options, seed):
        samples.append((folder / "captions.csv").read_text().splitlines())
        found = {"recall_sum": 120.5, "text_to_image/recall_at_10": 0.25}
        return {"dev": found, "test": found, "best_epoch": 7}

    monkeypatch.setattr(few_photos, "_train", train)
    words = ("--num_images=2", "--repeats=2", f"--captions={captions}")
    out = verbs.printed("benchmark", "--benchmark=few_photos", *words)
    assert len(re.findall(r"2 +[01] +120.5 +120.5 +25.0 +7 ", out)) == 2
    for sample in samples:
        assert sample[-2:] == ["6.jpg,a dog 6,dev", "7.jpg,a dog 7,test"]
        assert len(sample) == 5
    assert samples[0] != samples[1]
