"""What every test may use: the real data's place and the execution modes."""

import os
import pathlib

import pytest

import tbnets  # noqa: F401  (before TensorFlow: it quietens the start-up)

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Out of the environment, where it would move the data of every other test;
# under another name, by which the workers of pytest-xdist find it.
if "TBNETS_DATA" in os.environ:
    os.environ["TBNETS_REAL_DATA"] = os.environ.pop("TBNETS_DATA")


@pytest.fixture(scope="session")
def data_root():
    """Returns the folder of the real data, or skips with the reason."""
    default = ROOT.parent / "shared" / "data"
    root = pathlib.Path(os.environ.get("TBNETS_REAL_DATA", default))
    if not (root / "flickr8k").is_dir():
        pytest.skip(f"real data not found under {root}; set TBNETS_DATA")
    return root


@pytest.fixture(params=["eager", "graph", "xla"])
def compiled(request):
    """Returns a wrapper that runs a function eagerly, as graph or by XLA."""
    import tensorflow as tf

    if request.param == "eager":
        return lambda function: function
    return lambda function: tf.function(
        function, jit_compile=request.param == "xla"
    )
