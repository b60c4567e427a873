"""Tests of exporting what is exported already."""

import pathlib

import numpy as np
import PIL.Image
import pytest

from tbnets.cli import export
from tbnets.errors import ExistingFileError
from tbnets.serving import protocol
from tbnets.serving.saved_files import read_metadata
from tbnets.serving.served import load_saved_model
from tests import saved_models, tiny_localizer, verbs
from tests.cli.test_query import COLORS, write_networks
from tests.refusals import refused


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    tiny_localizer.write_model(folder / "1", read_regions=None)
    return folder


def test_serving_adds_warm_up_requests(source, tmp_path):
    pytest.importorskip("tensorflow_serving")
    output = tmp_path / "served" / "colours"
    words = (f"--model={source}", f"--output={output}", "--serving")
    keep = "--signatures=embed_phrases,embed_regions"
    said, _, failure = verbs.ask("export", *words, keep)
    assert not failure
    path = said.split()[1]
    assert [str(one) for one in output.iterdir()] == [path]
    assert path == str(output / "1")
    model = load_saved_model(path)  # Its files are those of its sha256.
    requests = protocol.read_warm_up_requests(path)
    asked = {one.model_spec.signature_name for one in requests}
    assert asked == set(model.signatures)
    assert protocol.WARMUP_FILE in model.metadata["sha256"]


def test_the_next_version_has_all_signatures(source, tmp_path):
    (tmp_path / "6").mkdir()
    words = (f"--model={source}", f"--output={tmp_path}")
    said, _, failure = verbs.ask("export", *words)
    assert not failure and str(tmp_path / "7") in said
    said = [read_metadata(one) for one in (source / "1", tmp_path / "7")]
    assert said[0]["signatures"] == said[1]["signatures"]
    with pytest.raises(ExistingFileError):
        verbs.call("export", words[0], f"--output={tmp_path / '7'}")


def test_a_model_is_converted_for_litert(tmp_path, monkeypatch):
    """`make_zoo` converts this model; here is what it is converted with."""
    conversions = []

    def convert(network, endpoints, path, *more):
        conversions.append((network, *more))
        path = pathlib.Path(path)
        path.mkdir()
        (path / "text.tflite").write_bytes(b"lite")
        return path, {"text.tflite": 0.9999}

    monkeypatch.setattr(export.litert, "write_litert", convert)
    words = ("--model=scenes_embedding", f"--output={tmp_path / 'lite'}")
    said, _, failure = verbs.ask("export", *words, "--litert=float16")
    assert not failure and str(tmp_path / "lite") in said
    assert "text.tflite 0.00 MB, cosine with the network >= 0.9999" in said
    [(network, kind, photos, about)] = conversions
    assert (kind, photos) == ("float16", [])
    assert network.text_branch and about["source"] == "scenes_embedding"
    assert "text_to_image/recall_at_1" in about["source_recalls"]


def test_the_similarity_of_likely_results_is_measured(tmp_path):
    write_networks(tmp_path, "bytes")
    photos, captions = tmp_path / "photos", tmp_path / "captions.csv"
    photos.mkdir()
    rows, rng = ["image,caption"], np.random.default_rng(0)
    for row in range(260):  # The splits are drawn.
        name, color = f"{row}.png", rng.choice([*COLORS])
        shade = np.array(COLORS[color]) * rng.integers(50, 100) // 100
        photo = PIL.Image.new("RGB", (4, 4), (*map(int, shade + row % 40),))
        photo.save(photos / name)
        rows.append(f"{name},a {color} one")
    captions.write_text("\n".join([*rows, ""]))
    words = [f"--model={tmp_path / 'bytes'}", f"--output={tmp_path / 'new'}"]
    words.append(f"--dev_captions={captions}")
    with refused("--dev_captions"):
        verbs.call("export", *words)
    with saved_models.loaded_once():
        verbs.call("export", *words, f"--photos={photos}")
        words = f"--model={tmp_path / 'new'}", f"--output={tmp_path / 'again'}"
        verbs.call("export", *words)  # A copy keeps the number.
        model = load_saved_model(tmp_path / "again")
        [small, all_dev] = model.metadata["metadata"]["likely_similarities"]
        assert small[0] == 10 < all_dev[0] and small[1] <= all_dev[1]
