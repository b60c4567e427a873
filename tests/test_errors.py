"""Tests of the errors that are meant for the user."""

import inspect
import pathlib
import pickle
import re

import pytest
import tensorflow as tf

from tbnets import errors

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind not in (errors.UserError, errors.ArgumentError)
]
# The built-in errors that have a kind for users.
PLAIN = (
    *("ValueError", "OSError", "FileNotFoundError", "FileExistsError"),
    *("IsADirectoryError", "ImportError", "ModuleNotFoundError"),
    *("ConnectionError", "KeyError", "RuntimeError", "Exception"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_has_a_builtin_base(kind):
    error = kind("`x` must be y.")
    assert isinstance(error, errors.UserError)
    assert str(error) == "`x` must be y."
    assert kind.__bases__[1].__module__ == "builtins"


def test_an_error_carries_its_data():
    error = errors.InputError("x", "be 1", "x=2", "Give 1.")
    assert str(error) == "`x` must be 1. Received: x=2. Give 1."
    assert error.fields == ("x", "be 1", "x=2", "Give 1.")
    assert (error.argument, error.args) == ("x", (str(error),))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields) == (type(error), error.fields)
    assert errors.InputError("All is wrong.").argument is None


@pytest.mark.parametrize("kind", [errors.InputError, errors.InputTypeError])
def test_errors_keep_their_type_in_graphs(kind):
    @tf.function
    def fail():
        if tf.constant(1).shape.rank == 0:
            raise kind("`x` must be y.")

    with pytest.raises(kind, match="`x` must be y"):
        fail()


def test_modules_raise_only_user_errors():
    raised = re.compile(
        rf"(?:raise |return |class \w+\()(?:{'|'.join(PLAIN)})\b"
    )
    problems = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("tbnets", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "errors.py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if raised.search(line)
    ]
    assert not problems, "\n".join(problems)
