"""Tests of files of flags and of words that are no flags."""

import dataclasses
import re

import pytest

from tbnets.cli.train import DEVICES, FIRST
from tbnets.errors import InputError, MissingFileError
from tbnets.tasks.settings import flag as flags
from tbnets.tasks.settings.flag import REQUIRED, CommandLine, flag, flags_of
from tbnets.tasks.settings.settings import ALL
from tests.refusals import refused
from tests.verbs import ask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Some flags."""

    out: str = flag(REQUIRED, "Where to.")
    empty: str = flag("", "A text.")
    none: int | None = flag(None, "A whole number.")
    alpha: float = flag(0.5, "A number.")
    loud: bool = flag(True, "A switch.")
    sizes: list[int] = flag([3, 4], "A list.")
    kind: str = flag("b", "A choice.", choices=("b", "a"))
    long: str = flag("", "word " * 40)
    names: list[str] = flag([], "What is no flag.", kind="words")


def parse(*words):
    return CommandLine(words, flags_of(Options))


def test_flags_of_a_file_take_the_place_of_its_flag(tmp_path):
    inner, outer = tmp_path / "inner.flags", tmp_path / "outer.flags"
    inner.write_text("--alpha=1\n--sizes=1,2\n")
    outer.write_text(
        f"# A comment.\n\n// Another.\n--flagfile={inner}\n--alpha=2\n"
    )
    line = ["--sizes=9", f"--flagfile={outer}", "--out", "x", "y", "--", "--z"]
    found = parse(*line)
    assert found.take(Options) == Options(
        out="x", alpha=2.0, sizes=[1, 2], names=["y", "--z"]
    )
    assert found.set_flags == {"out", "alpha", "sizes"}
    assert found.typed == {"out", "sizes"}
    assert parse("-flagfile", str(inner), "--out=x").values["alpha"] == 1


@pytest.mark.parametrize(
    "name", ["quickstart", "quickstart.flags", "configs/quickstart.flags"]
)
def test_a_configuration_is_found_by_name(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    path = flags.find_flagfile(name)
    assert path == flags.configs_folder() / "quickstart.flags"
    # An existing file takes precedence, but a folder is not a flag file.
    (tmp_path / "configs").mkdir()
    (tmp_path / "quickstart").mkdir()
    assert flags.find_flagfile(name) == path
    (tmp_path / "configs" / "quickstart.flags").touch()
    (tmp_path / "quickstart").rmdir()
    (tmp_path / "quickstart").touch()
    (tmp_path / "quickstart.flags").touch()
    assert flags.find_flagfile(name).samefile(tmp_path / name)


def test_a_path_that_does_not_exist_is_not_a_configuration(tmp_path):
    with refused("--flagfile", kind=MissingFileError):
        flags.find_flagfile(f"{tmp_path}/else/quickstart.flags")


def without_words(*words):
    """Parses a line that takes flags alone."""
    flags = [flag for flag in flags_of(Options) if flag.kind != "words"]
    return CommandLine(words, flags)


@pytest.mark.parametrize(
    "line",
    [
        "--out = x",
        "--out =x",
        "--flagfile={path}",
        "--aplha=3",
        "--flagfile=absent.flags",
        "out=x",
    ],
)
def test_a_wrong_line_of_a_flagfile_is_named(tmp_path, line):
    path = tmp_path / "my.flags"
    path.write_text(f"# Mine.\n{line.format(path=path)}\n")
    with pytest.raises((InputError, MissingFileError)) as caught:
        without_words("--out=x", f"--flagfile={path}")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "words, name",
    [
        (["--out=x", "--aplha=3"], "aplha"),
        ([], "--out"),
        (["--out=x", "--kind=c"], "--kind"),
        (["--out=x", "--alpha=many"], "--alpha=many"),
        (["--out=x", "--sizes=20,5  # as the paper"], "--sizes"),
        (["--flagfile=quikstart"], "--flagfile"),
        (["--flagfile"], "--flagfile"),
        (["--out=x", "a", "b"], "The command line"),
    ],
)
def test_a_wrong_word_of_the_command_line_is_named(tmp_path, words, name):
    good = tmp_path / "good.flags"
    good.write_text("--alpha=3\n")
    # What the command line itself has is no matter of a file.
    with refused(name) as caught:
        without_words(f"--flagfile={good}", *words)
    assert str(good) not in str(caught.value)


def test_every_flag_is_shown_once():
    shown, err, failure = ask("train", "--help")
    assert (err, failure) == ("", "")
    names = re.findall(r"^  --(?:\[no\])?(\w+)", shown, flags=re.MULTILINE)
    assert sorted(names) == sorted(ALL.keys() | {*FIRST, *DEVICES})
    assert names[: len(FIRST)] == [*FIRST]
