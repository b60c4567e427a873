"""Tools that are killed (-9) and started again as a user would.

A tool runs once undisturbed; from that all changes that it makes to its files
are known. Then it is killed right before one of them, or at some moment. What
it leaves must be of use, the same command must go on or begin again, and in
the end the same arrays must be there, bit for bit.
"""

import shutil
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tbnets.data.images import decode_images
from tbnets.files import is_partial
from tbnets.serving import embedding_cache, zoo
from tbnets.serving.export import export_saved_model
from tests import fresh, tiny
from tests.fuzz import cut
from tests.fuzz.long import only_long
from tests.fuzz.runs import arrays_of_run
from tests.photo_files import encode
from tests.tiny_localizer import VOCABULARY, ColourNetwork
from tests.tools.test_make_zoo import CARD

TRAIN = "tools/train.py"
PROGRAM = "tbnets/__main__.py"
NUM_PHOTOS = 20


class Tool(NamedTuple):
    """What is killed.

    Args:
        command: (given, folder) -> the tool and its flags, where `given` has
            what it reads, and it writes below `folder`.
        result: (given, folder) -> name -> array, all that it has to leave.
        before: name of a folder that is there before the tool starts.
        check: folder -> None; raises where a kill has done harm.
    """

    command: Callable
    result: Callable
    before: str = ""
    check: Callable = lambda folder: None


def _train(given, folder):
    changes = {"epochs": 2, "images_per_batch": 6, "export": True}
    flags = tiny.arguments(given / "data", folder / "run", **changes)
    return [TRAIN, *(f"--{k}={v}" for k, v in flags.items())]


def _export(given, folder):
    return [PROGRAM, "export", f"--run_dir={folder / 'run'}"]


def _extract(given, folder):
    return [
        PROGRAM,
        "extract_image_features",
        f"--images={given / 'photos'}",
        "--cnn=SqueezeNet",
        "--cnn_weights=random",
        "--image_size=48",
        "--batch_size=1",
        f"--output={folder / 'store'}",
    ]


def _search(given, folder):
    return [
        PROGRAM,
        "query",
        f"--model={given / 'colors'}",
        f"--images={given / 'photos'}",
        f"--cache={folder / 'cache'}",
        "red",
    ]


def _make_zoo(given, folder):
    return [
        "tools/make_zoo.py",
        f"--zoo={folder / 'zoo'}",
        f"--run_dir={given / 'run'}",
        "--name=tiny",
        f"--card={given / 'card.md'}",
        "--most_lost=50",
    ]


def _variables(folder):
    """Returns the variables of the newest version of a SavedModel.

    They have no order there that would be the same each time.
    """
    versions = [path for path in folder.iterdir() if path.name.isdigit()]
    newest = max(versions, key=lambda path: int(path.name))
    reader = tf.train.load_checkpoint(str(newest / "variables" / "variables"))
    names = reader.get_variable_to_shape_map()
    arrays = [np.asarray(reader.get_tensor(name)) for name in names]
    arrays = [array for array in arrays if array.dtype.kind != "S"]
    arrays.sort(key=lambda array: (array.shape, array.tobytes()))
    return {f"variable {number}": x for number, x in enumerate(arrays)}


def _of_training(given, folder):
    return arrays_of_run(folder / "run") | _of_export(given, folder)


def _of_export(given, folder):
    return _variables(folder / "run" / "saved_model")


def _of_store(given, folder):
    paths = (folder / "store").iterdir()
    return {path.name: path.read_bytes() for path in paths}


def _of_search(given, folder):
    model = zoo.open_model(given / "colors")
    ids, rows = embedding_cache.embed_folder(
        model, given / "photos", folder / "cache"
    )
    return dict(zip(ids, rows))


def _of_zoo(given, folder):
    return _variables(folder / "zoo" / "tiny")


TOOLS = {
    "training": Tool(_train, _of_training),
    "export": Tool(_export, _of_export, "run"),
    "extraction of features": Tool(_extract, _of_store),
    "indexing of photos": Tool(_search, _of_search),
    "making a zoo's model": Tool(
        _make_zoo,
        _of_zoo,
        "zoo",
        lambda folder: zoo.check_files(folder / "zoo" / "tiny"),
    ),
}


class Undisturbed:
    """Tools that nobody killed, each run once, and what they read.

    Args:
        folder: an empty folder.

    Attributes:
        changes: name of a tool -> all changes that it made to its files.
        seconds: name of a tool -> how long it took.
        results: name of a tool -> name -> array.
    """

    def __init__(self, folder):
        self.folder = folder
        self.changes, self.seconds, self.results = {}, {}, {}
        tiny.write_precomputed(folder / "data")
        (folder / "photos").mkdir()
        for number in range(NUM_PHOTOS):
            content = encode(seed=number)
            (folder / "photos" / f"{number}.jpg").write_bytes(content)
        (folder / "card.md").write_text(CARD)
        export_saved_model(
            ColourNetwork(),
            VOCABULARY,
            folder / "colors" / "1",
            image_shape=(16, 16, 3),
            read_photos=lambda photos: decode_images(photos, 16),
        )
        self.run("training")

    def run(self, name):
        """Runs a tool where it has not run yet."""
        if name in self.results:
            return
        line = TOOLS[name].command(self.folder, self.folder)
        log, began = self.folder / "log", time.perf_counter()
        command = cut.command(self.folder, line, log=log)
        fresh.run(*command, check=True, eagerly=True)
        self.seconds[name] = time.perf_counter() - began
        self.changes[name] = log.read_text().splitlines()
        self.results[name] = TOOLS[name].result(self.folder, self.folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


def check(undisturbed, name, folder, cuts, seconds=fresh.PATIENCE):
    """Kills a tool, starts it again and compares what it leaves.

    Args:
        undisturbed: `Undisturbed`.
        name: one of `TOOLS`.
        folder: an empty folder.
        cuts: (word, number) of `cut.command`, one for each time that it is
            killed before it comes to its end.
        seconds: after which it is killed at the latest.
    """
    undisturbed.run(name)
    tool = TOOLS[name]
    if tool.before:
        shutil.copytree(
            undisturbed.folder / tool.before,
            folder / tool.before,
            ignore=shutil.ignore_patterns("saved_model"),
        )
    line = tool.command(undisturbed.folder, folder)
    for word, number in cuts:
        line, code = _kill(folder, line, word, number, seconds)
        if seconds < fresh.PATIENCE:  # It may have been quicker than before.
            assume(code == -signal.SIGKILL)
        assert code == -signal.SIGKILL
    tool.check(folder)
    ended = fresh.run(*line, eagerly=True)
    if "Add --resume" in ended.stderr:
        ended = fresh.run(*line, "--resume", eagerly=True)
    assert not ended.returncode, ended.stderr
    found = tool.result(undisturbed.folder, folder)
    np.testing.assert_equal(found, undisturbed.results[name])
    assert not [path for path in folder.rglob("*") if is_partial(path.name)]


def _kill(folder, line, word, number, seconds):
    """Starts a tool as its user would; returns its flags and exit code."""
    for flags in (line, [*line, "--resume"]):
        command = cut.command(folder, flags, word, number)
        process = fresh.start(*command, eagerly=True)
        process.join(seconds)
        process.kill()
        process.join()
        # It refuses to train where there is a run to go on with.
        if line[0] != TRAIN or process.exitcode != 1:
            break
    return flags, process.exitcode


@pytest.mark.parametrize(
    "name, cuts",
    [
        (
            "training",  # Is killed, goes on, is killed again.
            [
                ("run/settings.json", 1),
                ("checkpoints/last.npz", 2),
                ("saved_model/1", 1),
            ],
        ),
        ("making a zoo's model", [("rename ", 1)]),
        ("indexing of photos", [("rename ", 1)]),
        ("extraction of features", [("features.npy", 2), ("ids.txt", 1)]),
    ],
)
def test_a_tool_that_was_cut_leaves_the_same(undisturbed, tmp_path, name, cuts):
    check(undisturbed, name, tmp_path, cuts)


@only_long
def test_a_tool_that_was_cut_anywhere_leaves_the_same(
    undisturbed, tmp_path_factory
):
    @settings(max_examples=100)
    @given(st.sampled_from(sorted(TOOLS)), st.booleans(), st.floats(0, 1))
    def leaves_the_same(name, is_at_a_change, share):
        undisturbed.run(name)
        folder = tmp_path_factory.mktemp("cut")
        if is_at_a_change:
            number = 1 + int(share * (len(undisturbed.changes[name]) - 1))
            check(undisturbed, name, folder, [("", number)])
        else:
            seconds = share * undisturbed.seconds[name]
            check(undisturbed, name, folder, [("", 0)], seconds)

    leaves_the_same()
