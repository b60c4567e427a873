"""Verbs called in the process of the tests."""

import contextlib
import io

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
    out, err, failure = io.StringIO(), io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            commands.call(verb, [str(word) for word in words])
        except UserError as error:
            failure = str(error)
    return out.getvalue(), err.getvalue(), failure
