"""`tbnets.NAME`: every name is there, and none is imported before its time."""

import inspect

import pytest

import tbnets
import tbnets.layers
import tbnets.losses
import tbnets.models
from tbnets.data.store.features import Features
from tbnets.serving.served import Served

PUBLIC = {name: getattr(tbnets, name) for name in tbnets.__all__}
PUBLIC |= {"Served": Served, "Features": Features}  # What is returned.


@pytest.mark.parametrize("name", tbnets.__all__)
def test_public_name_is_the_object_of_its_module(name):
    value = getattr(tbnets, name)
    assert value is getattr(tbnets, name)
    assert name in dir(tbnets)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__name__ == name
        assert value.__module__ == tbnets._MODULES[name]
        assert inspect.getdoc(value)


def test_importing_a_public_name_prints_no_messages(
    tmp_path, monkeypatch, capfd
):
    noise = "import os\nos.write(2, b'noise from a library')\nthing = 1\n"
    (tmp_path / "noisy.py").write_text(noise)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setitem(tbnets._MODULES, "thing", "noisy")
    assert tbnets.thing == 1
    monkeypatch.delattr(tbnets, "thing")
    assert capfd.readouterr().err == ""


def test_a_misspelt_name_is_refused():
    with pytest.raises(AttributeError, match="EmbedingNetwork") as error:
        _ = tbnets.EmbedingNetwork
    assert error.value.obj is tbnets  # Python suggests the nearest name of it.


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
def test_public_signatures_are_annotated(name):
    value = PUBLIC[name]
    found = {"": value} if inspect.isfunction(value) else functions_of(value)
    for method, function in dict(found).items():
        signature = inspect.signature(function)
        told = {k: one.annotation for k, one in signature.parameters.items()}
        told["return"] = signature.return_annotation
        told.pop("self", told.pop("cls", None))
        bare = [key for key in told if told[key] is inspect.Parameter.empty]
        assert not bare, f"{name}.{method} has no annotation of {bare}"
