"""Defines the shared fixtures and the order of the tests."""

import gc
import os
import pathlib
import random
import sys
import types

import pytest
from xdist.scheduler import LoadFileScheduling

import tbnets  # noqa: F401  (before TensorFlow: it quietens the start-up)
from tbnets import startup
from tests.eager import without_tracing

gc.disable()  # Until all imports are done: their objects are kept anyway.
ROOT = pathlib.Path(__file__).resolve().parent.parent
# Renamed, as `TBNETS_DATA` would change the data folder of other tests. The
# workers of pytest-xdist read the new name.
if "TBNETS_DATA" in os.environ:
    os.environ["TBNETS_REAL_DATA"] = os.environ.pop("TBNETS_DATA")
# On a GPU, results in TF32 differ by more than the tests allow. The variable
# turns TF32 off in processes that the tests start.
startup.prepare_tensorflow()
os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
# By default, the first worker would reserve the memory of the GPU.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# A sync waits for the files of all workers, at worst for 40 seconds. No test
# needs its files after a power failure.
os.fsync = lambda descriptor: None
# Workers share the cores, and waiting threads of scikit-learn use CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# The slowest files, so that no worker begins one of them last.
FIRST = (
    "test_page_blocks.py",
    "losses/test_replicas.py",
    "tasks/matching/test_presets.py",
    "fuzz/test_kills.py",
    "test_conformance.py",
    "test_docstring_examples.py",
    "tasks/localization/test_run.py",
    "test_notebooks.py",
    "tasks/matching/test_own_photos.py",
    "losses/test_tiles.py",
    "training/test_loop.py",
)
# Packages with fast files, so that workers end at about the same time.
LAST = {"data", "evaluation", "settings", "visualization", "text"}
# The files of a group share a worker, which imports Keras Hub and writes its
# presets once, or starts one fork server (`fresh`), which imports TensorFlow.
GROUPS = {
    "Keras Hub": {
        "tests/cli/test_model_scores.py",
        "tests/features/test_hub.py",
        "tests/features/test_hub_texts.py",
        "tests/features/test_hub_vision.py",
        "tests/tasks/matching/test_presets.py",
        "tests/text/test_byte_pairs.py",
    },
    "fork server": {
        "tests/cli/test_run_tools.py",
        "tests/fuzz/test_kills.py",
        "tests/losses/test_replicas.py",
        "tests/models/test_keras_file.py",
        "tests/serving/test_photo_reader.py",
    },
}
GROUP_OF = {file: group for group, files in GROUPS.items() for file in files}


class Scheduling(LoadFileScheduling):
    """Runs each file, and all files of a group, in one worker."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return GROUP_OF.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Returns a `Scheduling` for `--dist=loadfile`, which is the default."""
    if config.getoption("dist") == "loadfile":
        return Scheduling(config, log)
    return None


def pytest_collection_modifyitems(items):
    """Puts the files of `FIRST` first and the packages of `LAST` last."""
    places = {f"tests/{name}": place for place, name in enumerate(FIRST)}

    def place(item):
        path = item.nodeid.partition("::")[0]
        is_last = bool(LAST & {*path.split("/")})
        return places.get(path, len(places) + is_last)

    items.sort(key=place)


def pytest_collection_finish():
    """Excludes imported objects from garbage collection; collects less often.

    With the default thresholds, it takes a thirtieth of the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Seeds the weights that a test and its fixtures draw without a seed.

    Keras draws the seeds of weights with `random`. A global seed of TensorFlow
    would clear its kernels, and each test would prepare the graphs of shared
    models again.
    """
    random.seed(0)


@pytest.fixture(scope="session")
def data_root():
    """Returns the folder of the real data, or skips with the reason."""
    default = ROOT.parent / "shared" / "data"
    root = pathlib.Path(os.environ.get("TBNETS_REAL_DATA", default))
    if not (root / "flickr8k").is_dir():
        pytest.skip(f"real data not found under {root}; set TBNETS_DATA")
    return root


@pytest.fixture(scope="session", autouse=True)
def pictures_of_runs_take_less_time():
    """Draws the curves of the first run; other runs get the same picture.

    The tests of drawing check the curves. Pictures in event files have a
    sixteenth of their pixels.
    """
    if "tbnets.tasks.runs" not in sys.modules:
        yield
        return
    import tensorflow as tf

    from tbnets.files import write_atomically
    from tbnets.visualization import plots

    pictures, draw_history = [], plots.draw_history

    def draw(history, path, *more):
        if not pictures:
            draw_history(history, path, *more)
            pictures.append(path.read_bytes())
        write_atomically(path, lambda file: file.write(pictures[0]))

    write_image = tf.summary.image

    def write_small(tag, rows, *more, **options):
        write_image(tag, rows[:, ::4, ::4], *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        runs = sys.modules["tbnets.tasks.runs"]
        only = types.SimpleNamespace(draw_history=draw)
        patch.setattr(runs, "plots", only)
        patch.setattr(tf.summary, "image", write_small)
        yield


@pytest.fixture
def eagerly():
    """Runs steps without tracing, which saves seconds in a test."""
    with without_tracing():
        yield


@pytest.fixture(scope="module")
def module_eagerly():
    """Runs all steps of a file without tracing, see `eagerly`."""
    with without_tracing():
        yield


@pytest.fixture(params=["eager", "graph", "xla"])
def compiled(request):
    """Returns a wrapper that runs a function eagerly, as graph or by XLA."""
    import tensorflow as tf

    if request.param == "eager":
        return lambda function: function
    return lambda function: tf.function(
        function, jit_compile=request.param == "xla", autograph=False
    )


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Returns `tiny_runs.Runs`: call it with task, model and settings."""
    from tests import tiny_runs

    return tiny_runs.Runs(tmp_path_factory.mktemp("tiny_runs"))


@pytest.fixture(scope="session")
def hub_presets(tmp_path_factory):
    """Returns `tiny_hub.Presets`, shared by all tests; do not change them."""
    pytest.importorskip("keras_hub")
    from tests import tiny_hub

    return tiny_hub.Presets(tmp_path_factory.mktemp("presets"))
