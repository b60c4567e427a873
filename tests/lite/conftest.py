"""The interpreter of the tests of LiteRT models."""

import types

import pytest
import tensorflow as tf

from tbnets import lite


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    """Uses TensorFlow's interpreter where `ai-edge-litert` is missing."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            import ai_edge_litert.interpreter  # noqa: F401
        except ImportError:
            package = types.SimpleNamespace(Interpreter=tf.lite.Interpreter)
            patch.setattr(lite, "import_extra", lambda *_: package)
        yield
