"""Every benchmark runs and prints its table; what it times is not judged."""

import contextlib
import importlib
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import StandIn
from tbnets.serving import zoo
from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import write_saved_model
from tests import fresh, verbs
from tests.features.test_photo_features import photo
from tests.serving import test_photo_index

SMALL = (
    "--embedding_dim=4",
    "--hidden_dim=5",
    "--captions_per_image=2",
    "--num_negatives=2",
    "--repeats=1",
    "--num_captions=3",
    "--word_dim=4",
    "--num_components=2",
    "--workers=2",
)
CNN = ("--cnn=SqueezeNet", "--image_size=64")
TITLES = {
    "loss": "2 images, 4 captions, 4-d, K = 2, three terms",
    "train_step": "2 images, 4 captions, 4096/6000 -> 5 -> 4, Adam",
    "evaluation": "Evaluation of 2 images x 4 captions x 4, both directions",
    "fisher_vectors": "3 captions of 12 words, 4 x 2 x 2 = 16-d; ",
    "extraction": "SqueezeNet last, 2 photos of ",
    "tree_lstm": "3 captions of 12 words, 62 nodes in 8 levels, 4 -> 5, ",
    "search": "2 photos that are new, flickr8k_photos, ",
    "region_step": "100 phrases, 2 photos, 400 regions of which ",
    "batch_sizes": "signature    size  ms a call",
    "index": "2 x 4, float32, built in ",
    "replicas": "2 images, 4 captions, 5 -> 4",
    "replica_costs": "2 images, 4 captions, 5 -> 5 -> 4, ",
    "mapped": "2 images x 10 captions x 4 in files of 0 MiB: ",
}
ROWS = {
    "loss": ["matmuls forward", "matmuls forward + backward", "miner + loss"],
    "train_step": [
        "matmuls alone, float32",
        "train step, float32",
        "train step, mixed_bfloat16",
    ],
    "evaluation": ["trained", "untrained"],
    "extraction": ["forward passes alone", "extraction"],
    "search": [
        "forward passes alone",
        "photos embedded and kept",
        "files and their stamps",
        "what is kept of them read",
        "all of them found again",
        "sentence embedded and ranked",
        "the same, and drawn",
    ],
    "region_step": [
        "matmuls alone",
        "matmuls, all regions learned from",
        "train step",
        "matmuls alone, softmax",
        "softmax step",
    ],
    "tree_lstm": ["matmuls alone", "LSTM of Keras", "LSTM over trees"],
    "fisher_vectors": [
        "written to a store",
        "copied in memory",
        "encoded",
        "encoded, words anew",
        "a sentence at a time",
    ],
    "batch_sizes": ["embed_text     64", "embed_image     1"],
    "index": ["float32, 1: in Python", "bfloat16, 32: in the graph"],
    "replicas": ["no strategy", "one replica"],
    "replica_costs": [],
    "mapped": [],
}


class Searched(test_photo_index.MeanColour):
    """What a model of the zoo has that a search asks."""

    made_by = {"cnn": "SqueezeNet", "image_size": 64, "layers": ["last"]}
    metadata = {"metadata": {"image_features_made_by": made_by}}
    takes_photos = True
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


def run(*line):
    """Runs the tool."""
    if "--benchmark=evaluation" in line:  # Whose rows processes print.
        return fresh.run("tools/benchmark.py", *line)
    return verbs.run("benchmark", *line)


def _measured_here(job, workers, *parts):
    """Times parts in this process, which has no messages to send."""
    parts_of = importlib.import_module("measuring.replica_parts").measured
    return parts_of(job._replace(parts=parts))


def test_what_a_worker_is_able_to_is_told_by_its_steps():
    costs = importlib.import_module("benchmarks.replica_costs")
    job = costs.Job(images=8, captions=2, hidden=10, dim=3, repeats=1)
    found = {}
    for images in (8, 4, 2):
        own = costs.cost(job._replace(images=images), 1)
        found[f"alone {images}"] = 5 + (own.layers + own.loss) / 200
    fixed, rate = costs.fitted(job, found, [8, 4, 2])
    assert (fixed, rate) == (pytest.approx(5), pytest.approx(200))


def test_what_workers_cost_on_paper():
    costs = importlib.import_module("benchmarks.replica_costs")
    job = costs.Job(images=4, captions=2, hidden=10, dim=3, repeats=1)
    own = costs.cost(job, workers=2, reduces=5, gathers=6)
    # Of 12 rows 6: 2 * 6 * (2 * 100 + 3 * 30) of layers; 128 pairs, 2 * 3 each.
    assert (own.layers, own.loss) == (3480, 384)
    # 260 weights summed twice and 12 x 3 numbers; these and 12 ids.
    assert (own.reduced, own.gathered) == (2 * 1040 + 144, 144 + 96)
    machine = costs.Machine(fixed=7, rate=3864, latency=2, bandwidth=2344)
    # 7 + 1 ms, by three workers on two cores; 5 + 6 / 2 messages, 2344 bytes.
    crowded = machine._replace(crowd=1.5)
    assert costs.predicted(own, machine) == (8, 17)
    assert costs.predicted(own, crowded) == (12, 17)


@pytest.mark.parametrize("name", TITLES)
def test_benchmark_prints_its_table(name, tmp_path, eagerly, monkeypatch):
    model = Searched(tmp_path / "model")
    monkeypatch.setattr(zoo, "open_model", lambda name: model)
    # Four processes would each import TensorFlow to be looked at.
    index = importlib.import_module("benchmarks.index")
    monkeypatch.setattr(index, "_held", index._taken)
    # So would two, three and four workers, for their messages.
    costs = importlib.import_module("benchmarks.replica_costs")
    monkeypatch.setattr(costs, "measure", _measured_here)
    parts = importlib.import_module("measuring.replica_parts")
    monkeypatch.setattr(parts, "WARM_UP", 0)
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(photo(i))
    sizes = ("--num_images=2", "--num_photos=2", f"--images={tmp_path}")
    ended = run(f"--benchmark={name}", *SMALL, *sizes, *CNN)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(TITLES[name])
    for row in ROWS[name]:
        numbers = rf" *{re.escape(row)} +\d+\.\d+( s)? +\d+\.\d+"
        found = [line for line in lines if re.match(numbers, line)]
        assert len(found) == 1, ended.stdout


def test_benchmark_of_regions(tmp_path, eagerly):
    (tmp_path / "a.jpg").write_bytes(photo(1))
    ended = run(
        "--benchmark=extraction",
        f"--images={tmp_path}",
        *CNN,
        "--num_boxes=3",
        "--num_photos=1",
        "--repeats=1",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("3 boxes, SqueezeNet last at 64, 1 photos")
    assert "forward passes alone" in ended.stdout


def test_benchmark_of_cells(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    model = Searched(tmp_path / "model")
    monkeypatch.setattr(zoo, "open_model", lambda name: model)
    (tmp_path / "a.jpg").write_bytes(photo(1))
    captions = tmp_path / "captions.csv"
    captions.write_text("image,caption,split\na.jpg,a dog,test\n")
    ended = run(
        "--benchmark=approximate",
        f"--images={tmp_path}",
        f"--captions={captions}",
        "--num_images=40",
        "--repeats=1",
    )
    assert ended.returncode == 0, ended.stderr
    assert "40 x 3, cells built in" in ended.stdout
    assert "recall@10 of 1 sentences: 1.000" in ended.stdout
    assert "32: by cells" in ended.stdout


@pytest.fixture
def zoo_of_one(tmp_path, monkeypatch):
    """A zoo whose models are two names of one, of zeros."""
    pytest.importorskip("tensorflow_serving")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "captions")])
    def embed_text(captions):
        return {"embeddings": tf.zeros([tf.size(captions), 2])}

    endpoints = Endpoints({"embed_text": embed_text}, "embed_text")
    for name in ("flickr8k_photos", "scenes_embedding"):
        write_saved_model(endpoints, tmp_path / name / "1")
    monkeypatch.setattr(zoo, "folder", lambda: tmp_path)


def test_benchmark_of_a_server(zoo_of_one, monkeypatch):
    @contextlib.contextmanager
    def here():
        models = Models({serving.MODEL: zoo.folder() / serving.MODEL})
        with StandIn(models, port=0, rest_port=0) as server:
            yield os.getpid(), server.port, server.rest_port

    serving = importlib.import_module("benchmarks.serving")
    monkeypatch.setattr(serving, "server", here)
    ended = run("--benchmark=serving", "--repeats=1")
    assert ended.returncode == 0, ended.stderr
    for row in ("bare     1   1", "gRPC     8   1", "REST    32   8"):
        assert re.search(rf"^{row}( +\d+\.\d){{3}}$", ended.stdout, re.M)
    assert re.search(r"^40 more requests: \d+ MB$", ended.stdout, re.M)
