"""Tests of `tbnets serve`."""

import socket

import pytest

from tbnets.cli import serve
from tbnets.serving import zoo
from tests.extras.server.tiny_models import write_version
from tests.refusals import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_version(folder, 2)
    return folder


@pytest.mark.parametrize(
    ("written", "name", "place"),
    [("{}", "tiny", ""), ("{}/2", "tiny", "2"), ("a=b={}", "a=b", "")],
)
def test_a_model_is_named_by_its_folder_or_explicitly(
    folder, written, name, place
):
    folders = serve.folders_of([written.format(folder), "scenes_embedding"])
    zoo_model = zoo.folder() / "scenes_embedding"
    assert folders == {name: folder / place, "scenes_embedding": zoo_model}


@pytest.mark.parametrize("names", [["x=", "x="], ["a/b="], ["a:b="]])
def test_names_that_a_url_cannot_contain_are_rejected(folder, names):
    with refused("--model"):
        serve.folders_of([f"{name}{folder}" for name in names])


def test_serve_prints_requests_and_ends_by_ctrl_c(folder, monkeypatch, capsys):
    codes = []

    def ended():
        raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)
    monkeypatch.setattr(serve.loopback, "wait", ended)
    monkeypatch.setattr(serve.os, "_exit", codes.append)
    serve.main(
        serve.Options(model=[f"tiny={folder}"], port=0, rest_api_port=port)
    )
    printed = capsys.readouterr()
    assert codes == [0]
    assert f"127.0.0.1:{port}/v1/models/tiny:predict" in printed.out
    assert printed.err.count("tiny version 2") == 1
