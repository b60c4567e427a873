"""Tests of a model on a server, called like a loaded model."""

import numpy as np
import pytest

from tbnets.cli.serve import serving
from tbnets.errors import InputError, UnreachableError
from tbnets.extras.server import client
from tbnets.extras.server.client import Client
from tbnets.extras.server.models import Models
from tests import tiny_localizer, verbs
from tests.extras.server.tiny_models import write_version
from tests.refusals import refused

BOXES = [*tiny_localizer.BOXES.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    tiny_localizer.write_photo(folder / "photo.png")
    tiny_localizer.write_model(folder / "colours" / "1")
    write_version(folder / "numbers", 3)
    return folder


@pytest.fixture(scope="module")
def models(folder):
    names = ("colours", "numbers")
    folders = {name: folder / name for name in names}
    return Models(folders, tell=lambda line: None)


@pytest.fixture(scope="module")
def server(models):
    """Returns the address of a server with both models."""
    with serving(models, port=None) as (_, port):
        yield f"http://127.0.0.1:{port}"


def ask_all(model, photo):
    """Returns the answers of a model to requests of each kind."""
    strict = {"image_bytes": photo, "phrases": ["red"], "boxes": BOXES}
    return [
        model.embed_phrases(["red", "blue and red"]),
        model.embed_phrases([]),
        model.embed_regions(np.eye(3)),
        model.similarity(["red"], [[200, 0, 0], [0, 0, 9]]),
        model.compare(np.eye(3), np.eye(3)),
        model.localize(["red", "blue"], photo, BOXES),
        model.find(["red"], photo, boxes=BOXES)[0][0][0],
        model.call("localize_strict", **strict)["similarities"],
    ]


def test_a_client_answers_like_the_loaded_model(server, folder, models):
    photo, own = folder / "photo.png", folder / "colours"
    here = models.get("colours").served
    there = Client(server, "colours", folder=own, timeout=300)
    assert there.signatures.keys() == here.signatures.keys()
    for name in here.signatures:
        assert there.inputs(name) == here.inputs(name)
    assert there.embedding_dim == 3 and there.takes_photos
    assert "red" in there.vocabulary.words
    answers = ask_all(here, photo)
    for received, wanted in zip(ask_all(there, photo), answers, strict=True):
        assert received.shape == wanted.shape
        assert received.dtype == wanted.dtype
        np.testing.assert_allclose(received, wanted, atol=1e-6)
    with pytest.raises(InputError, match="18 bytes"):
        there.localize(["red"], b"no photo, no photo", BOXES)


def test_ask_prints_the_status_and_writes_embeddings(server, tmp_path):
    line, rows = (f"--server={server}", "--model=colours"), tmp_path / "a.npy"
    out, err, error = verbs.ask("ask", "status", *line)
    assert (err, error) == ("", "")
    assert "/colours version 1  AVAILABLE" in out
    assert "> phrases string (None,)" in out
    words = (*line, f"--output={rows}", "red", "blue and red")
    out, _, _ = verbs.ask("ask", "embed", *words)
    assert f"2 x 3 embeddings: {rows}" in out
    assert np.load(rows)[0].tolist() == [1, 0, 0]
    with refused("--model"):  # There are two.
        verbs.call("ask", "status", line[0])


def test_rows_are_sent_in_several_requests(server, monkeypatch):
    rows, sizes, ask = np.arange(10.0).reshape(5, 2), [], client.ask

    def counting(url, timeout, document=None):
        if document:
            sizes.append(len(next(iter(document["inputs"].values()))))
        return ask(url, timeout, document)

    monkeypatch.setattr(client, "ask", counting)
    model = Client(server, "numbers")
    for name, value in (("_MOST_ROWS", 2), ("_MOST_BYTES", 17)):
        with monkeypatch.context() as patch:
            patch.setattr(client, name, value)
            answers = model.call("times", numbers=rows)
        np.testing.assert_array_equal(answers["products"], 3 * rows)
        np.testing.assert_array_equal(answers["sums"], 3 * rows.sum(1))
    assert sizes == [2, 2, 1, 2, 2, 1]  # 17 bytes hold two rows of 8 bytes.
    sums = model.call("pairs", first=[1, 2, 3], second=[4])["sums"]
    np.testing.assert_array_equal(sums, [[5], [6], [7]])


def test_rejected_requests_are_errors_of_the_input(server):
    with pytest.raises(InputError, match="none"):
        Client(server, "none")
    with pytest.raises(InputError, match="positive"):
        Client(server, "numbers").call("times", numbers=[[-1, 1]])


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "localhost:1", ""])
def test_a_server_that_does_not_respond_is_named(server):
    with refused(server, kind=UnreachableError):
        Client(server, "numbers")
