"""Verbs called in the process of the tests."""

import contextlib
import io
import subprocess

from tbnets import commands
from tbnets.errors import UserError


def ask(verb, *words):
    """Returns (standard output, standard error, error) of a verb.

    Args:
        verb: key of `commands.VERBS`.
        *words: the command line behind it.

    Returns:
        Three strings; the error is that which a user would be told, or "".
    """
    return _called(verb, words)[1:]


def run(verb, *words):
    """Calls a verb; answers as `subprocess.run` of the tool would."""
    code, out, err, failure = _called(verb, words)
    if failure:
        code, err = 1, f"{err}error: {failure}\n"
    return subprocess.CompletedProcess((verb, *words), code or 0, out, err)


def _called(verb, words):
    out, err, code, failure = io.StringIO(), io.StringIO(), None, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = commands.call(verb, [str(word) for word in words])
        except UserError as error:
            failure = str(error)
    return code, out.getvalue(), err.getvalue(), failure
