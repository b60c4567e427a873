"""Tests of the verbs: what `tbnets` says, and that tools are the same."""

import importlib
import pathlib
import subprocess
import sys

import pytest

import tbnets
from tbnets import __version__ as version
from tbnets import cli, startup
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import flags_of, name_flag
from tests.verbs import ask

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_CLONES = {
    *("benchmark", "check_accelerator", "compare_parses"),
    *("compare_replicas", "make_zoo", "reproduce"),
    "scene_ceiling",
}
SCRIPTS = ("train", "evaluate", "export")


def test_help_lists_all_verbs(monkeypatch, capsys):
    codes = []
    monkeypatch.setattr(startup, "run", lambda work: codes.append(work()))
    for words in ([], ["--help"], ["--version"]):
        monkeypatch.setattr("sys.argv", ["/bin/tbnets", *words])
        cli.main()
    *texts, last = capsys.readouterr().out.split("\n\n  tbnets VERB ")[1:]
    assert codes == [0, 0, 0] and last.endswith(f"\n{version}\n")
    for text in (*texts, last):
        assert all(f"  {verb} " in text for verb in cli.VERBS)


def test_the_package_is_a_program():
    ended = subprocess.run(
        [sys.executable, "-m", "tbnets", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == (f"{version}\n", "")


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_prints_help_and_version(verb):
    out, _, failure = ask(verb, "-h")
    assert failure == "" and f"tbnets {verb}" in out and "  --" in out
    assert ask(verb, "--version") == (f"{version}\n", "", "")


def test_the_table_of_the_zoo_is_printed():
    assert ask("zoo") == (f"{tbnets.zoo.describe()}\n", "", "")


@pytest.mark.parametrize(
    "verb, argument, flag",
    [
        ("train", "num_negatives", "--num_negatives"),
        ("train", "steps", "--image_transform"),
        ("extract_image_features", "weights", "--cnn_weights"),
        ("index", "paths", "paths"),  # Words are no flag.
        ("evaluate", "unknown", "unknown"),
    ],
)
def test_an_error_names_the_flag_that_sets_its_argument(verb, argument, flag):
    module = importlib.import_module(f"tbnets.cli.{verb}")
    groups = module.Options, *getattr(module, "GROUPS", ())
    flags = [each for group in groups for each in flags_of(group)]
    error = InputError(argument, "be > 0", f"{argument}=0")
    name_flag(error, flags)
    assert error.fields == (flag, "be > 0", f"{argument}=0")


def test_verbs_can_be_abbreviated_and_unknown_verbs_suggest_similar_ones():
    assert cli.verb_of("make_s") == "make_scenes"
    for word, near in (("quary", "query"), ("extract", "extract_text_feat")):
        with pytest.raises(InputError, match=near):
            cli.verb_of(word)


def test_scripts_of_a_clone_call_their_verbs():
    tools = {path.stem: path for path in (ROOT / "tools").glob("*.py")}
    assert tools.keys() == {*SCRIPTS, *OF_CLONES}
    for verb in SCRIPTS:
        text = tools[verb].read_text("utf-8")
        assert f'cli.run_tool("{verb}")' in text


def test_the_recorded_command_line_can_be_typed(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tools/train.py", "--images=my photos"])
    assert startup.command_line() == "tools/train.py '--images=my photos'"
    monkeypatch.setattr("sys.argv", ["/home/me/tbnets", "train", "--resume"])
    assert startup.command_line() == "tbnets train --resume"
