"""The verb that tells of the models that come along, and writes one."""

import pytest

import tbnets
from tbnets.serving.served import load_saved_model
from tests.verbs import ask


def test_without_flags_the_table_is_printed():
    assert ask("zoo") == (f"{tbnets.zoo.describe()}\n", "", "")


def test_a_model_is_written_as_a_server_finds_it(tmp_path):
    name = "scenes_hm_lstm"
    for version in (1, 2):
        path = tmp_path / "served" / name / str(version)
        line = f"--export={name}", tmp_path / "served"
        assert ask("zoo", *line) == (f"SavedModel  {path}\n", "", "")
    [own] = load_saved_model(path).embed_text(["(NP red ball)"])
    [wanted] = tbnets.zoo.load(name).embed_text(["(NP red ball)"])
    assert own.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "line, said",
    [
        (["--export=scenes_hm_lstm"], "and 0 folders"),
        (["served"], "--export= and 1 folders"),
        (["--export=scenes_hm_lstm", "a", "b"], "and 2 folders"),
        (["--export=scenes", "a"], "There are: entities_localization"),
        (["--export=scenes", "a"], "`--export` must be one of the zoo's"),
    ],
)
def test_what_can_not_be_written_is_refused(line, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in ask("zoo", *line)[2]
    assert list(tmp_path.iterdir()) == []
