"""Verbs called in the process of the tests."""

import contextlib
import importlib
import io
import subprocess

import pytest

from tbnets import cli
from tbnets.errors import UserError


def ask(verb, *words):
    """Returns (standard output, standard error, error) of a verb.

    Args:
        verb: a key of `cli.VERBS`, or a tool of the clone.
        *words: the command line behind it.

    Returns:
        Three strings; the error is that which a user would be told, or "".
    """
    return _called(verb, words)[1:]


def call(verb, *words):
    """Calls a verb; raises the error that a user would be told."""
    with _quietly():
        return cli.call(_verb(verb), [str(word) for word in words])


def run(verb, *words):
    """Calls a verb; answers as `subprocess.run` of the tool would."""
    code, out, err, failure = _called(verb, words)
    if failure:
        code, err = 1, f"{err}error: {failure}\n"
    return subprocess.CompletedProcess((verb, *words), code or 0, out, err)


def printed(verb, *words, code=0):
    """Calls a verb that ends with `code`; returns its output and errors."""
    ended = run(verb, *words)
    assert ended.returncode == code, ended.stderr
    return ended.stdout + ended.stderr


def train(*words):
    """Calls `train` as `run` does, where TensorFlow has computed already.

    It is too late then to ask TensorFlow for the same bits each time.
    """
    from tbnets.training import loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_reproducible", lambda: None)
        return run("train", *words)


def _verb(name):
    """Returns a verb, or a tool of the clone as a module."""
    return name if name in cli.VERBS else importlib.import_module(name)


@contextlib.contextmanager
def _quietly():
    """Yields (standard output, standard error) of the block."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def _called(verb, words):
    code, failure = None, ""
    with _quietly() as (out, err):
        try:
            code = cli.call(_verb(verb), [str(word) for word in words])
        except UserError as error:
            failure = str(error)
    return code, out.getvalue(), err.getvalue(), failure
