"""Tests of --help and of flags that are wrong."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# absl parses a process's flags once; without TensorFlow, each takes a moment.
TOOL = '''"""Does a thing.

  python tool.py --out=FILE
"""

from absl import flags

from tbnets import startup

flags.DEFINE_string("out", None, "Where to.", required=True)
flags.DEFINE_string("empty", "", "A text.")
flags.DEFINE_float("alpha", 0.5, "A number.")
flags.DEFINE_bool("loud", True, "A switch.")
flags.DEFINE_list("sizes", ["3", "4"], "A list.")
flags.DEFINE_enum("kind", "b", ["b", "a"], "A choice.")
flags.DEFINE_string("long", None, "word " * 40)


def main(argv):
    print("done", *argv[1:])


if __name__ == "__main__":
    startup.run_tool(main)
'''
HELP = """\
Does a thing.

  python tool.py --out=FILE

Flags:

  --out  (required)
        Where to.
  --empty
        A text.
  --alpha  (default: 0.5)
        A number.
  --[no]loud  (default: true)
        A switch.
  --sizes  (default: 3,4)
        A list.
  --kind  (default: b)
        A choice. One of b, a.
  --long
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "tool.py"
    path.write_text(TOOL)
    return path


def run(tool, *arguments, columns=80):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns)}
    ended = subprocess.run(
        [sys.executable, str(tool), *arguments],
        capture_output=True,
        text=True,
        env=env,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("flag", ["--help", "--helpshort", "-help", "-?"])
def test_help_shows_the_docstring_and_flags_as_defined(tool, flag):
    code, output, errors = run(tool, flag)
    assert (code, errors) == (0, "")
    assert output.startswith(HELP)


@pytest.mark.parametrize("columns, widest", [(60, 60), (80, 80), (300, 100)])
def test_help_is_as_wide_as_the_terminal(tool, columns, widest):
    _, output, _ = run(tool, "--help", columns=columns)
    widths = [len(line) for line in output.splitlines()]
    # A line ends where another "word " of 5 letters would not fit.
    assert widest - 5 < max(widths) <= widest


def test_help_may_be_read_in_part(tool):
    head = f"{sys.executable} {tool} --help | head -1"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {head}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "Does a thing.\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--aplha=3"], "Unknown command line flag 'aplha'. Did you mean: alp"),
        ([], "Flag --out must have a value other than None."),
        (["--out=x", "--kind=c"], "value should be one of <b|a>"),
        (["--out=x", "--alpha=many"], "--alpha=many"),
        (["--flagfile=absent.flags"], "absent.flags"),
    ],
)
def test_a_wrong_flag_is_one_line(tool, arguments, message):
    code, output, errors = run(tool, *arguments)
    assert (code, output) == (1, "")
    assert message in errors
    assert errors.startswith("error: ") and errors.count("\n") == 1


def test_absl_may_still_show_all(tool):
    code, output, _ = run(tool, "--helpfull")
    assert code == 1 and "absl.logging:" in output


def test_flags_are_parsed_as_ever(tool):
    assert run(tool, "--out=x", "y", "--", "--z") == (0, "done y --z\n", "")
