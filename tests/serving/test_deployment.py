"""Tests of the files by which TensorFlow Serving serves a model."""

import json
import re

import pytest
from google.protobuf import text_format

from tbnets.serving import deployment
from tbnets.serving.saved_files import METADATA_FILE
from tests.refusals import refused

CONFIG = pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2"
)
TEXTS = {
    "inputs": {"captions": {"dtype": "string", "shape": [None]}},
    "outputs": {"embeddings": {"dtype": "float32", "shape": [None, 4]}},
}
SCORE = {
    "inputs": {**TEXTS["inputs"], "image_bytes": TEXTS["inputs"]["captions"]},
    "outputs": {"similarities": {"dtype": "float32", "shape": [None, None]}},
}


def write(folder, signatures, name="own_photos", max_pixels=None):
    """Returns what was written for a model: name of a file -> content."""
    version = folder / "3"
    path = version / METADATA_FILE
    path.parent.mkdir(parents=True)
    (version / "data").write_bytes(bytes(1000))
    said = {"sha256": {"data": ""}, "max_pixels": max_pixels}
    path.write_text(json.dumps({"signatures": signatures, **said}))
    paths, unbatched = deployment.write_deployment(version, name)
    assert unbatched == [n for n, one in signatures.items() if one is SCORE]
    return {path.name: path.read_text() for path in paths}


def test_deployment_files_enable_batching(tmp_path):
    files = write(tmp_path, {"embed_text": TEXTS})
    config = text_format.Parse(
        files["models.config"], CONFIG.ModelServerConfig()
    )
    [model] = config.model_config_list.config
    assert (model.name, model.base_path) == ("own_photos", "/models/own_photos")
    assert model.model_platform == "tensorflow"
    # A request to warm up by must fit.
    told = files["batching_parameters.txt"]
    [most] = re.findall(r"max_batch_size { value: (\d+) }", told)
    assert int(most) >= max(deployment.SIZES)
    for name in ("docker-compose.yml", "kubernetes.yaml"):
        flags = [
            x.strip(" -") for x in files[name].splitlines() if " - --" in x
        ]
        assert flags == [
            "model_config_file=/models/own_photos/models.config",
            "enable_batching=true",
            "batching_parameters_file=/models/own_photos/batching_parameters.txt",
        ]
        assert "$" not in files[name]


def test_deployment_files_omit_batching_if_a_signature_prevents_it(tmp_path):
    (tmp_path / "batching_parameters.txt").write_text("of an older version")
    files = write(tmp_path, {"embed_text": TEXTS, "score": SCORE})
    assert "batching_parameters.txt" not in files
    assert not (tmp_path / "batching_parameters.txt").exists()
    assert not any("batching" in text for text in files.values())


def test_deployment_files_are_valid_yaml(tmp_path):
    yaml = pytest.importorskip("yaml")
    files = write(tmp_path, {"score": SCORE}, max_pixels=80_000_000)
    [service] = yaml.safe_load(files["docker-compose.yml"])["services"].items()
    name, compose = service
    assert name == "own-photos" and compose["volumes"] == [
        ".:/models/own_photos:ro"
    ]
    assert all(port.startswith("127.0.0.1:") for port in compose["ports"])
    runs, reaches = yaml.safe_load_all(files["kubernetes.yaml"])
    pod = runs["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert container["args"] == compose["command"]
    assert container["image"] == compose["image"] == deployment.IMAGE
    probe = container["readinessProbe"]["httpGet"]
    assert probe == {"path": "/v1/models/own_photos", "port": "rest"}
    # Ten photos of 80 million pixels, 6 bytes each: 4.5 GiB beside the model.
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"memory": "6Gi"},
    }
    assert compose["mem_limit"] == "6g"
    labels = pod["metadata"]["labels"]
    assert runs["spec"]["selector"]["matchLabels"] == labels
    assert reaches["spec"]["selector"] == labels
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}


@pytest.mark.parametrize("name", ["", "a b", "..", "a/b", "x" * 64, "-a", "1a"])
def test_model_name_must_be_valid_in_urls(name):
    with refused("output"):
        deployment.check_model_name(name)
