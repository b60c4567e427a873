"""Tests of files of flags and of words that are no flags."""

import pytest

from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of
from tests.tasks.settings.test_help import Options


def parse(*words):
    return CommandLine(words, flags_of(Options))


def test_lines_stand_where_the_file_is_named(tmp_path):
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
    assert found.given == {"out", "alpha", "sizes"}
    assert found.typed == {"out", "sizes"}
    assert parse("-flagfile", str(inner), "--out=x").values["alpha"] == 1


@pytest.mark.parametrize(
    "name", ["quickstart", "quickstart.flags", "configs/quickstart.flags"]
)
def test_a_configuration_is_found_by_name(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    path = command_line.find_flagfile(name)
    assert path == command_line.configs_folder() / "quickstart.flags"
    # What is there wins, and a folder is no file of flags.
    (tmp_path / "configs").mkdir()
    (tmp_path / "quickstart").mkdir()
    assert command_line.find_flagfile(name) == path
    (tmp_path / "configs" / "quickstart.flags").touch()
    (tmp_path / "quickstart").rmdir()
    (tmp_path / "quickstart").touch()
    (tmp_path / "quickstart.flags").touch()
    assert command_line.find_flagfile(name).samefile(tmp_path / name)


def test_configurations_that_name_others_are_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = command_line.expand(
        ["--flagfile=wang2018_flickr30k_fisher_linear_one"]
    )
    assert len(words) > 20


def test_a_file_that_is_not_there_names_the_near_ones(tmp_path):
    with pytest.raises(FileNotFoundError, match="`--flagfile` must") as caught:
        parse("--flagfile=quikstart")
    assert "Did you mean quickstart" in str(caught.value)
    with pytest.raises(FileNotFoundError, match="else/quickstart.flags. Did"):
        command_line.find_flagfile(f"{tmp_path}/else/quickstart.flags")


@pytest.mark.parametrize("line", ["--out = x", "--out x", "--out =x"])
def test_blanks_behind_a_flag_are_told_with_file_and_line(tmp_path, line):
    path = tmp_path / "my.flags"
    path.write_text(f"# Mine.\n--alpha=3\n{line}\n")
    with pytest.raises(ValueError) as caught:
        parse(f"--flagfile={path}")
    assert str(caught.value) == (
        f"{path}:3: expected --flag=value; found '{line}'. Write no blanks "
        "before the value."
    )


def test_a_file_that_names_itself_is_refused(tmp_path):
    path = tmp_path / "own.flags"
    path.write_text(f"--flagfile={path}\n")
    with pytest.raises(ValueError, match="found --flagfile=.* Take that line"):
        parse(f"--flagfile={path}")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--aplha=3"], "Unknown command line flag 'aplha'. Did you mean: alp"),
        (["--aplha=3"], "See --help."),
        ([], "`--out` must be given."),
        (["--out=x", "--kind=c"], "value should be one of <b|a>"),
        (["--out=x", "--alpha=many"], "--alpha=many"),
        (["--out=x", "--sizes=1,b"], "`--sizes` must be integers"),
        (["--flagfile=absent.flags"], "absent.flags"),
        (["--flagfile"], "`--flagfile` must be a file"),
    ],
)
def test_a_wrong_flag_is_told(words, message):
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        parse(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line, typed, told",
    [
        ("--aplha=3", [], "Unknown command line flag 'aplha'"),
        ("--alpha=many", [], "flag --alpha=many"),
        ("--alpha", [], "`--alpha` must have a value"),
        ("--flagfile=absent.flags", [], "`--flagfile` must be a file"),
        ("out=x", [], "The command line must have flags only"),
        ("--alpha=3", ["--alpha=many"], ""),
    ],
)
def test_a_wrong_line_of_a_flagfile_is_named(tmp_path, line, typed, told):
    """What the command line itself has is no matter of the file."""
    path = tmp_path / "my.flags"
    path.write_text(f"# Mine.\n{line}\n")
    flags = [flag for flag in flags_of(Options) if flag.kind != "words"]
    words = ["--out=x", *typed, f"--flagfile={path}"]
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        CommandLine(words, flags)
    place = f"{path}:2: {told}" if told else "flag --alpha=many"
    assert str(caught.value).startswith(place)


def test_words_are_refused_where_none_are_taken():
    flags = [flag for flag in flags_of(Options) if flag.kind != "words"]
    with pytest.raises(ValueError, match="flags only. Received: a b. Write"):
        CommandLine(["--out=x", "a", "b"], flags)
