"""Tests of the verb that asks a model on a server."""

import json

import numpy as np
import pytest

from tbnets.cli import ask as asking
from tbnets.cli.ask import Options
from tbnets.serving.search import Answer
from tests.extras.server import shown_colours
from tests.refusals import refused
from tests.verbs import ask, call


class Colours(shown_colours.Colours):
    """Stands for a `Client` of a model with an index."""

    signatures = {"embed_image": None, "search": None}
    takes_captions = True

    def has(self, *names):
        return not {"compare", "embed_phrases"} & {*names}

    def search(self, texts, top):
        answers = [Answer("red.png", 0.5, None), Answer("blue.png", 0.25, 0.75)]
        return [answers[:top] for _ in texts]

    def states(self):
        return [{"version": "2", "state": "AVAILABLE"}]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    model = Colours(tmp_path / "model")
    monkeypatch.setattr(Options, "connect", lambda self: model)
    return shown_colours.write_photos(tmp_path)


def test_the_server_is_asked_as_the_flags_say(monkeypatch):
    monkeypatch.setattr(asking, "Client", lambda *given, **more: (given, more))
    flags = {"timeout": 5, "retries": 1, "batch_size": 8, "folder": "runs/own"}
    options = Options(server="grpc://box", model="own", **flags)
    assert options.connect() == (("grpc://box", "own", None), flags)
    given, more = Options(model="own", model_version=3).connect()
    assert given[-1] == 3 and more["folder"] is None


def test_sentences_and_photos_are_embedded(photos, tmp_path):
    out, err, error = ask("ask", "embed", "red", "a zebra")
    assert (err, error) == ("", "")
    first, second = out.splitlines()
    assert first.split()[:3] == ["1.0000", "0.0000", "0.0000"]
    assert second.split()[:3] == ["0.0000"] * 3 and '"a zebra"' in second
    paths = f"--images={photos}/more,{photos}/cut.png,{photos}/red.png"
    rows = tmp_path / "rows.npy"
    out, err, error = ask("ask", "embed", paths, f"--output={rows}")
    assert not error and f"{photos}/cut.png" in err
    np.testing.assert_allclose(np.load(rows), [[0, 1, 0], [1, 0, 0]])
    out, _, _ = ask("ask", "embed", "--json=-", "red")
    assert json.loads(out)["embeddings"][0]["embedding"] == [1, 0, 0]


def test_sentences_are_compared_with_photos(photos):
    paths = f"--images={photos}/more,{photos}/red.png"
    out, err, error = ask("ask", "score", "--json=-", paths, "red zebra")
    assert (err, error) == ("", "")
    [found] = json.loads(out)["queries"]
    assert found["unknown_words"] == ["zebra"]
    told = [[one["image"], one["similarity"]] for one in found["answers"]]
    assert told == [[f"{photos}/red.png", 1], [f"{photos}/more/green.png", 0]]
    out, _, _ = ask("ask", "score", "--top=1", paths, "green")
    assert out.split()[-3:] == ["1", "1.000", f"{photos}/more/green.png"]


def test_the_index_of_the_model_is_searched(photos):
    out, err, error = ask("ask", "search", "--json=-", "--top=1", "red")
    assert (err, error) == ("", "")
    [found] = json.loads(out)["queries"]
    assert found["answers"] == [{"image": "red.png", "similarity": 0.5}]
    out, _, _ = ask("ask", "search", "red", "blue")
    assert out.count("0.250  blue.png") == 2
    out, _, _ = ask("ask", "search", "--json=-", "red")
    [found] = json.loads(out)["queries"]
    assert [one.get("confidence") for one in found["answers"]] == [None, 0.75]


@pytest.mark.parametrize(
    "words, name",
    [
        ("", "tools/ask.py"),
        ("find red", "tools/ask.py"),
        ("embed", "embed"),
        ("embed red --images=x", "embed"),
        ("score red", "score"),
        ("search", "search"),
        ("embed red --output=no/a.npy", "--output"),
        ("embed red --json=no/a.json", "--json"),
    ],
)
def test_a_question_that_is_none_is_refused(photos, words, name):
    with refused(name):
        call("ask", *words.split())
