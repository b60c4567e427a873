"""Checks errors by what they carry: the argument, or the file and the line."""

import contextlib
import re

import pytest

from tbnets.errors import ArgumentError, MissingFileError
from tbnets.files import ProblemError


@contextlib.contextmanager
def at(path, line=None):
    """Expects a problem of a file at a line."""
    with pytest.raises(ProblemError) as error:
        yield error
    problem = error.value.problem
    assert (problem.path, problem.line) == (str(path), line), problem


def read_past(read):
    """Reads a bad file twice: to the first problem, and past all of them.

    Args:
        read: function of a list that collects problems, or of None.

    Returns:
        (what is read beside the problems, the problems).
    """
    with pytest.raises(ProblemError) as error:
        read(None)
    problems = []
    result = read(problems)
    assert problems[0] == error.value.problem
    return result, problems


def assert_about(error, *names):
    """Asserts that an error is about one of these arguments or files.

    Args:
        error: a `UserError`.
        *names: arguments, or words of a message without an argument; None for
            any such message.
    """
    argument = getattr(error, "argument", None)
    if names == (None,):
        assert argument is None, error
        return
    about = argument or str(error)
    found = [re.search(rf"{re.escape(str(n))}(?!\w)", about) for n in names]
    assert any(found), error


@contextlib.contextmanager
def refused(*names, kind=(ArgumentError, MissingFileError)):
    """Asserts that the block raises an error about an argument or a file.

    Args:
        *names: see `assert_about`.
        kind: class of the error, or a tuple of them.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert_about(caught.value, *names)
