"""What `tbnets serve` is asked for, and what it says."""

import socket

import pytest

from tbnets.cli import serve
from tbnets.serving import zoo
from tests.extras.server.tiny_models import write_version
from tests.refusals import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    for number in (1, 2):
        write_version(folder, number)
    return folder


@pytest.mark.parametrize(
    ("written", "name", "place"),
    [
        ("{}", "tiny", ""),
        ("{}/1", "tiny", "1"),
        ("a=b={}", "a=b", ""),
    ],
)
def test_a_model_is_called_by_its_folder_or_otherwise(
    folder, written, name, place
):
    found = serve.folders_of([written.format(folder), "scenes_embedding"])
    zoo_model = zoo.folder() / "scenes_embedding"
    assert found == {name: folder / place, "scenes_embedding": zoo_model}


@pytest.mark.parametrize("names", [[], ["x=", "x="], ["a/b="], ["a:b="]])
def test_names_that_no_url_has(folder, names):
    with refused("--model"):
        serve.folders_of([f"{name}{folder}" for name in names])


def write_config(tmp_path, folder, more=""):
    path = tmp_path / "models.config"
    path.write_text(
        "# Two names for one.\nmodel_config_list {\n  config {\n"
        f'    name: "tiny"\n    base_path: "{folder}"\n{more}'
        '    model_platform: "tensorflow"\n  }\n}\n'
    )
    return path


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("", [2]),
        ("all {}", [1, 2]),
        ("latest { num_versions: 2 }", [1, 2]),
        ("specific { versions: 1 versions: 7 }", [1]),
    ],
)
def test_a_config_of_tensorflow_serving_is_read(
    tmp_path, folder, policy, wanted
):
    pytest.importorskip("tensorflow_serving")
    more = f"model_version_policy {{ {policy} }}\n" if policy else ""
    more += 'version_labels { key: "stable" value: 1 }\n'
    path = write_config(tmp_path, folder, more)
    folders, policies, labels = serve.read_config(path)
    assert folders == {"tiny": folder}
    assert policies["tiny"]({1: "one", 2: "two"}) == wanted
    assert labels == {"tiny": {"stable": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "model_config_list {",
        "",
        'model_config_list { config { name: "x" model_platform: "x" } }',
        "model_config_list { config { } }",
    ],
)
def test_a_config_that_is_none_is_named(tmp_path, text):
    pytest.importorskip("tensorflow_serving")
    path = tmp_path / "models.config"
    path.write_text(text)
    with refused(path):
        serve.read_config(path)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"port": 8501}, "--port"),
        ({"batching_parameters_file": "x"}, "--batching_parameters_file"),
    ],
)
def test_flags_that_say_nothing_together(flags, name):
    with refused(name):
        serve.main(serve.Options(**flags))


def test_it_says_how_to_ask_it_and_ends_by_ctrl_c(folder, monkeypatch, capsys):
    def ended():
        raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)
    monkeypatch.setattr(serve.loopback, "wait", ended)
    options = serve.Options(
        model=[f"tiny={folder}"], port=0, rest_api_port=port, host="127.0.0.1"
    )
    assert serve.main(options) is None
    said = capsys.readouterr()
    assert f"127.0.0.1:{port}" in said.out and "gRPC" not in said.out
    assert said.err.count("tiny version 2") == 1
