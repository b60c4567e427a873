"""The verb that tells of the models that come along, and writes one."""

import pytest

import tbnets
from tbnets.serving import deployment
from tbnets.serving.served import load_saved_model
from tests.refusals import refused
from tests.verbs import ask, call


def test_without_flags_the_table_is_printed():
    assert ask("zoo") == (f"{tbnets.zoo.describe()}\n", "", "")


def test_a_model_is_exported_with_what_a_server_starts_with(tmp_path):
    pytest.importorskip("tensorflow_serving.apis")
    name = "scenes_hm_lstm"
    folder = tmp_path / "served" / name
    for version in (1, 2):
        path = folder / str(version)
        out, err, failure = ask("zoo", f"--export={name}", tmp_path / "served")
        assert str(path) in out and (err, failure) == ("", "")
    assert (folder / "models.config").is_file()
    requests = deployment.read_requests(path)
    names = {request.model_spec.signature_name for request in requests}
    assert names == {*load_saved_model(path).signatures}
    [own] = load_saved_model(path).embed_text(["(NP red ball)"])
    [wanted] = tbnets.zoo.load(name).embed_text(["(NP red ball)"])
    assert own.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "line",
    [
        ["--export=scenes_hm_lstm"],
        ["served"],
        ["--export=scenes_hm_lstm", "a", "b"],
        ["--export=scenes", "a"],
    ],
)
def test_what_can_not_be_written_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("--export"):
        call("zoo", *line)
    assert list(tmp_path.iterdir()) == []
