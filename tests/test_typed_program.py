"""The program that type checkers read names every public name, and runs."""

import ast
import inspect
import pathlib

import pytest

import tbnets
from tbnets.serving.served import Served
from tbnets.store.arrays import Features
from tests import typed_program

TREE = ast.parse(pathlib.Path(typed_program.__file__).read_text("utf-8"))
FUNCTIONS = [node for node in TREE.body if isinstance(node, ast.FunctionDef)]
QUICK = ["words", "networks", "losses", "data", "trees", "measures"]
PUBLIC = {name: getattr(tbnets, name) for name in tbnets.__all__}
PUBLIC |= {"Served": Served, "Features": Features}  # What is returned.


def test_it_names_every_public_name():
    right = [one for one in FUNCTIONS if one.name != "wrong"]
    found = {
        node.attr
        for function in right
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "tbnets"
    }
    assert set(tbnets.__all__) - found == set()


@pytest.mark.parametrize("name", QUICK)
def test_quick_parts_run(name, tmp_path):
    part = getattr(typed_program, name)
    part(*[tmp_path for _ in inspect.signature(part).parameters])


def functions_of(value):
    """Yields (name, function) of what is public of a value, and tbnets'."""
    for name in dir(value):
        member = inspect.getattr_static(value, name)
        member = getattr(member, "fget", getattr(member, "__func__", member))
        own = inspect.ismodule(value) and value.__name__
        if (
            inspect.isfunction(member)
            and (not name.startswith("_") or name in ("__init__", "__call__"))
            and member.__module__.startswith(own or "tbnets.")
            # What data classes and named tuples write themselves.
            and member.__code__.co_filename.endswith(".py")
        ):
            yield name, member


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_signature_says_what_it_takes_and_returns(name):
    value = PUBLIC[name]
    found = {"": value} if inspect.isfunction(value) else functions_of(value)
    for method, function in dict(found).items():
        signature = inspect.signature(function)
        told = {k: one.annotation for k, one in signature.parameters.items()}
        told["return"] = signature.return_annotation
        told.pop("self", told.pop("cls", None))
        bare = [key for key in told if told[key] is inspect.Parameter.empty]
        assert not bare, f"{name}.{method} has no annotation of {bare}"
