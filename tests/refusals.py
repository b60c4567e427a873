"""Checks errors by what they carry: the argument, or the file and the line."""

import pytest

from tbnets.errors import ArgumentError
from tbnets.files import ProblemError


def of(*arguments):
    """Expects an error whose argument is one of these."""
    return pytest.raises(
        ArgumentError, check=lambda error: error.argument in arguments
    )


def at(path, line=None):
    """Expects a problem of a file at a line."""
    place = str(path), line
    return pytest.raises(
        ProblemError,
        check=lambda error: (error.problem.path, error.problem.line) == place,
    )


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
