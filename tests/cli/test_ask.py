"""Tests of `tbnets ask`, against a server."""

import numpy as np
import pytest

from tbnets.cli.serve import serving
from tbnets.extras.server.models import Models
from tests import tiny_localizer
from tests.refusals import refused
from tests.verbs import ask, call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    tiny_localizer.write_model(folder / "1")
    return folder


def served(*names, folder):
    return serving(Models({name: folder for name in names}), port=None)


def test_the_only_model_is_asked(folder, tmp_path):
    with served("colours", folder=folder) as (_, port):
        server = f"--server=http://localhost:{port}"
        out, err, error = ask("ask", "status", server)
        assert (err, error) == ("", "")
        assert "/colours version 1  AVAILABLE" in out
        assert "> phrases string (None,)" in out
        rows = tmp_path / "a.npy"
        words = ("embed", server, f"--output={rows}", "red", "blue and red")
        assert f"2 x 3 embeddings: {rows}" in ask("ask", *words)[0]
        assert np.load(rows)[0].tolist() == [1, 0, 0]


def test_one_of_several_models_must_be_named(folder):
    with served("a", "b", folder=folder) as (_, port):
        server = f"--server=http://localhost:{port}"
        with refused("--model"):
            call("ask", "status", server)
        assert "/b version 1" in ask("ask", "status", server, "--model=b")[0]


@pytest.mark.parametrize(
    "words, name",
    [("", "ask"), ("find red", "ask")],
)
def test_wrong_requests_are_rejected(words, name):
    with refused(name):
        call("ask", *words.split())
