"""Checks errors by what they carry: the argument, or the file and the line."""

import contextlib
import re

import pytest

from tbnets.errors import ArgumentError, InputError, MissingFileError
from tbnets.files import ProblemError


@contextlib.contextmanager
def of(*arguments):
    """Expects an error whose argument is one of these."""
    with pytest.raises(ArgumentError) as error:
        yield error
    assert error.value.argument in arguments, error.value


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


def assert_names(error, named):
    """Asserts that an error is about an argument.

    Args:
        error: a `UserError`.
        named: its `argument`; words of the message, of one without.
    """
    argument = getattr(error, "argument", None)
    if argument is None:
        assert named in str(error)
    else:
        assert argument == named


def named(error):
    """Returns the argument that an error is about, or else its message."""
    return getattr(error, "argument", None) or str(error)


@contextlib.contextmanager
def refused(name, kind=(InputError, MissingFileError)):
    """Asserts that the block raises an error about an argument or a file.

    Args:
        name: the argument, or what a message must name: a file.
        kind: class of the error, or a tuple of them.
    """
    with pytest.raises(kind) as caught:
        yield caught
    found = named(caught.value)
    assert re.search(rf"{re.escape(str(name))}(?!\w)", found), caught.value
