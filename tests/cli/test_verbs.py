"""Tests of the verbs: what `tbnets` says, and that tools are the same."""

import math
import pathlib
import subprocess
import sys

import pytest

from tbnets import __version__ as version
from tbnets import cli, startup
from tbnets.errors import InputError, MissingFileError
from tbnets.models.fit_arguments import FiniteSteps
from tbnets.tasks.settings.flag import name_flags
from tests.refusals import refused
from tests.verbs import ask, call

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_CLONES = {
    *("benchmark", "check_accelerator", "compare_features", "compare_parses"),
    *("compare_replicas", "make_zoo", "prose_check", "reproduce"),
    "scene_ceiling",
}
SCRIPTS = ("train", "evaluate", "export")


def test_what_needs_no_network_loads_nothing_heavy():
    code = (
        "import sys, tbnets.cli.make_scenes\n"
        "import tbnets.cli.zoo\n"
        "tbnets.cli.overview()\n"
        "print(*{'tensorflow', 'keras'} & sys.modules.keys())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("\n", "")


def test_without_a_verb_all_are_listed(monkeypatch, capsys):
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
def test_each_verb_tells_its_flags_and_the_version(verb):
    out, _, failure = ask(verb, "-h")
    assert failure == "" and f"tbnets {verb}" in out and "  --" in out
    assert ask(verb, "--version") == (f"{version}\n", "", "")


FIELDS = [
    (
        ("top", "be above `splits`", "top=3, splits=4", "Raise `top`."),
        {"top": 3, "splits": "a"},
        (
            *("--top", "be above `--splits`"),
            *("--top=3, --splits=4", "Raise `--top`."),
        ),
    ),
    (
        ("steps", "end", "steps=log, split=dev"),
        {"image_transform": ["log"]},
        ("--image_transform", "end", "--image_transform=log, split=dev"),
    ),
    (
        ("images", "be finite", "nan in row 0"),
        {"images": "photos"},
        ("images", "be finite", "nan in row 0"),
    ),
    # Of several flags it names the one with the value.
    (
        ("preset", "be a folder", "preset=/here/my, clip"),
        {"cnn": "resnet", "text_encoder": "hub:./my, clip", "hub": ""},
        ("--text_encoder", "be a folder", "--text_encoder=/here/my, clip"),
    ),
    # Without the value it names all of them.
    (
        ("name", "be known", "none"),
        {"cnn": "A", "image_encoder": "B"},
        ("--cnn` or `--image_encoder", "be known", "none"),
    ),
    (
        ("path", "be a list", "path=a/b.txt"),
        {"index": "a/b.txt", "output": "c"},
        ("--index", "be a list", "--index=a/b.txt"),
    ),
]


@pytest.mark.parametrize("fields, flags, expected", FIELDS)
def test_an_error_names_the_flag_of_its_argument(fields, flags, expected):
    error = InputError(*fields)
    name_flags(error, flags)
    assert error.fields[: len(expected)] == expected


def test_a_message_alone_names_flags_too():
    error = MissingFileError("`path` must be there. Received: path=./q.")
    name_flags(error, {"output": "./q"})
    assert str(error) == "`--output` must be there. Received: --output=./q."


def test_words_are_no_flags(tmp_path, monkeypatch):
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "note.txt").touch()
    monkeypatch.chdir(tmp_path)
    with refused("--output"):
        call("index", "q", "--output=q", "--model=scenes_embedding")


def test_steps_that_left_the_finite_numbers_speak_of_no_other_flag():
    with pytest.raises(ValueError) as caught:
        FiniteSteps().on_epoch_end(0, {"loss": 0.5, "gradient_norm": math.nan})
    text = str(caught.value)
    assert "Received: loss 0.5 and gradient_norm nan after epoch 1" in text
    assert text.endswith("set `gradient_clip_norm`.")
    name_flags(caught.value, {"loss": "", "clip_norm": 0})
    assert "Received: loss 0.5 and" in str(caught.value)
    assert str(caught.value).endswith("set `--clip_norm`.")


def test_the_beginning_of_a_verb_will_do():
    for word, expected in (
        ("train", "train"),
        ("describe", "describe_data"),
        ("make_s", "make_scenes"),
    ):
        assert cli.verb_of(word) == expected


@pytest.mark.parametrize(
    "word, near",
    [
        ("quary", "query"),
        ("extract", "extract_image_features or extract_text_features"),
        ("zzz", "zzz"),
    ],
)
def test_an_unknown_verb_names_the_near_ones(word, near):
    with pytest.raises(InputError, match=near):
        cli.verb_of(word)


def test_scripts_of_a_clone_call_their_verbs():
    tools = {path.stem: path for path in (ROOT / "tools").glob("*.py")}
    assert tools.keys() == {*SCRIPTS, *OF_CLONES}
    for verb in SCRIPTS:
        text = tools[verb].read_text("utf-8")
        assert f'cli.run_tool("{verb}")' in text


def test_an_error_is_one_line_without_a_traceback():
    command = [sys.executable, "-m", "tbnets", "zoo", "--export=x"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1 and "tbnets zoo " in ended.stderr


def test_the_recorded_command_line_can_be_typed(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tools/train.py", "--images=my photos"])
    assert startup.command_line() == "tools/train.py '--images=my photos'"
    monkeypatch.setattr("sys.argv", ["/home/me/tbnets", "train", "--resume"])
    assert startup.command_line() == "tbnets train --resume"
