"""Tools that are killed (-9) and started again as a user would.

Each of `TOOLS` is run once undisturbed, and then killed: half of the times at
a random moment, half right before one of the changes that it makes to its
files, all of which are known from the first run. What it leaves must be of
use, the same command must go on or begin again, and in the end the same
arrays must be there, bit for bit.
"""

import dataclasses
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tqdm

from tbnets.data.images import decode_images
from tbnets.files import is_partial
from tbnets.serving import photo_index, zoo
from tbnets.serving.export import export_saved_model
from tests import fresh, tiny
from tests.features.test_photo_features import photo
from tests.fuzz import cut, run_results
from tests.tools.test_make_zoo import CARD
from tests.tools.test_query import VOCABULARY, ColorNetwork

TRAIN = "tools/train.py"
NUM_PHOTOS = 7
NUM_EPOCHS = 3
_TRIES = 3


@dataclasses.dataclass
class Tool:
    """What is killed.

    Args:
        command: (given, folder) -> the tool and its flags; `given` is what
            `write_given` wrote, the tool writes below `folder`.
        result: (given, folder) -> dict of arrays that it has to leave.
        begin: (given, folder) -> None; writes what is there before.
        broken: folder -> what is wrong after a kill, before the tool is
            started again; "" for nothing.
        known: given -> the arrays of `result`, where `write_given` made them
            already.
    """

    command: Callable
    result: Callable
    begin: Callable = lambda given, folder: None
    broken: Callable = lambda folder: ""
    known: Callable | None = None


def write_given(folder, eagerly=False):
    """Writes what the tools read: data, photos, a finished run, models."""
    tiny.write_precomputed(folder / "data")
    (folder / "photos").mkdir()
    for number in range(NUM_PHOTOS):
        (folder / "photos" / f"{number}.jpg").write_bytes(photo(number))
    (folder / "card.md").write_text(CARD)
    export_saved_model(
        ColorNetwork(),
        VOCABULARY,
        folder / "colors" / "1",
        image_shape=(16, 16, 3),
        read_photos=lambda photos: decode_images(photos, 16),
    )
    fresh.run(*_train(folder, folder), check=True, eagerly=eagerly)
    (folder / "before").mkdir()
    fresh.run(*_make_zoo(folder, folder / "before"), check=True)
    return folder


def _train(given, folder):
    flags = tiny.arguments(
        given / "data", folder / "run", epochs=NUM_EPOCHS, export=True
    )
    return [TRAIN, *(f"--{k}={v}" for k, v in flags.items())]


def _export(given, folder):
    return ["tools/export.py", f"--run_dir={folder / 'run'}"]


def _extract(given, folder):
    return [
        "tools/extract_image_features.py",
        f"--images={given / 'photos'}",
        "--cnn=SqueezeNet",
        "--cnn_weights=random",
        "--image_size=48",
        "--shard_images=2",
        f"--output={folder / 'store'}",
    ]


def _search(given, folder):
    return [
        "tools/query.py",
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
    run_dir = folder / "run"
    return _variables(run_dir / "saved_model") | run_results.of_run(run_dir)


def _of_store(given, folder):
    return {
        path.name: np.frombuffer(path.read_bytes(), np.uint8)
        for path in (folder / "store").iterdir()
    }


def _of_search(given, folder):
    model = zoo.open_model(given / "colors")
    entries = photo_index.Index(folder / "cache", model).entries
    return {name: entry.embedding for name, entry in entries.items()}


def _begin_export(given, folder):
    without_export = shutil.ignore_patterns("saved_model")
    shutil.copytree(given / "run", folder / "run", ignore=without_export)


def _begin_zoo(given, folder):
    shutil.copytree(given / "before" / "zoo", folder / "zoo")


def _broken_zoo(folder):
    try:
        zoo.check_files(folder / "zoo" / "tiny")
    except (ValueError, OSError) as error:
        return str(error)
    return ""


TOOLS = {
    "training": Tool(
        _train, _of_training, known=lambda given: _of_training(given, given)
    ),
    "export": Tool(
        _export,
        lambda given, folder: _variables(folder / "run" / "saved_model"),
        _begin_export,
    ),
    "extraction of features": Tool(_extract, _of_store),
    "indexing of photos": Tool(_search, _of_search),
    "making a zoo's model": Tool(
        _make_zoo,
        lambda given, folder: _variables(folder / "zoo" / "tiny"),
        _begin_zoo,
        _broken_zoo,
        lambda given: _variables(given / "before" / "zoo" / "tiny"),
    ),
}


class Trials:
    """Kills of tools, and what came of them.

    Args:
        folder: an empty folder to work in.
        eagerly: of trainings, see `fresh.start`.
    """

    def __init__(self, folder, eagerly=False):
        self.folder = pathlib.Path(folder)
        self.eagerly = eagerly
        self.given = write_given(self.folder / "given", eagerly)
        self._undisturbed = {}
        self._number = 0

    def _how(self, line):
        return {"eagerly": self.eagerly and line[0] == TRAIN}

    def _new(self, name):
        self._number += 1
        folder = self.folder / f"trial{self._number}"
        folder.mkdir(parents=True)
        TOOLS[name].begin(self.given, folder)
        return folder

    def undisturbed(self, name):
        """Returns (arrays, changes, seconds) of a tool that nobody killed."""
        if name not in self._undisturbed:
            tool, folder = TOOLS[name], self._new(name)
            log, start = self.folder / "log", time.perf_counter()
            line = tool.command(self.given, folder)
            given = cut.command(folder, line, log=log)
            fresh.run(*given, check=True, **self._how(line))
            seconds = time.perf_counter() - start
            changes = log.read_text().splitlines()
            result = tool.result(self.given, folder)
            shutil.rmtree(folder)
            self._undisturbed[name] = result, changes, seconds
        return self._undisturbed[name]

    def _cut(self, folder, line, word, number, seconds):
        """Starts a tool as its user would and kills it.

        Returns:
            (the tool and its flags as they were taken, was killed).
        """
        for given in (line, [*line, "--resume"]):
            command = cut.command(folder, given, word, number)
            process = fresh.start(*command, **self._how(line))
            process.join(seconds or fresh.PATIENCE)
            process.kill()
            process.join()
            # It refuses to train where there is a run to go on with.
            if line[0] != TRAIN or process.exitcode != 1:
                break
        return given, process.exitcode == -signal.SIGKILL

    def kill(self, name, cuts=(("", 0),), seconds=None):
        """Kills a tool, starts it again and looks at what it leaves.

        Args:
            name: one of `TOOLS`.
            cuts: (word, number) of `cut.command`, one for each time that it
                is killed before it comes to its end.
            seconds: after which it is killed, where `number` is 0.

        Returns:
            (was killed, went on, same bits, what is wrong or "").
        """
        tool, folder = TOOLS[name], self._new(name)
        known = tool.known and tool.known(self.given)
        expected = known or self.undisturbed(name)[0]
        line, all_killed = tool.command(self.given, folder), True
        for word, number in cuts:
            line, killed = self._cut(folder, line, word, number, seconds)
            all_killed = all_killed and killed
        wrong = tool.broken(folder) or self._start_again(line)
        if wrong:
            return all_killed, False, False, wrong
        wrong = run_results.difference(
            expected, tool.result(self.given, folder)
        )
        if not wrong:
            left = [p.name for p in folder.rglob("*") if is_partial(p.name)]
            wrong = f"left behind: {', '.join(left)}" if left else ""
        shutil.rmtree(folder)
        return all_killed, True, not wrong, wrong

    def _start_again(self, line):
        """Runs a tool as its user would; returns what it said if it failed."""
        for _ in range(_TRIES):
            ended = fresh.run(*line, **self._how(line))
            if not ended.returncode:
                return ""
            if "Add --resume" not in ended.stderr:
                return ended.stderr
            line = [*line, "--resume"]
        return ended.stderr


def run(count, seed):
    """Kills tools at moments drawn by a seed; prints a table.

    Args:
        count: how many kills, an equal share of each tool.
        seed: of the moments.

    Returns:
        int, the number of faults.
    """
    generator = np.random.default_rng(seed)
    rows = {name: np.zeros(4, int) for name in TOOLS}
    os.environ.pop("TBNETS_DATA", None)  # It would move what is read.
    bar = tqdm.tqdm(total=count, unit="kill")
    with tempfile.TemporaryDirectory() as folder, bar:
        trials = Trials(folder)
        while bar.n < count:
            name = list(TOOLS)[bar.n % len(TOOLS)]
            share = generator.random()
            _, changes, seconds = trials.undisturbed(name)
            moment = {"seconds": share * seconds}
            if bar.n // len(TOOLS) % 2:
                moment = {"cuts": [("", 1 + int(share * len(changes)))]}
            killed, went_on, same, wrong = trials.kill(name, **moment)
            if not killed and not wrong:  # It was quicker than before.
                continue
            rows[name] += [killed, went_on, same, bool(wrong)]
            if wrong:
                tqdm.tqdm.write(f"fault: {name}, cut at {moment}: {wrong}")
            bar.update()
    print("| what | kills | went on | same bits | faults |")
    print("|---|---:|---:|---:|---:|")
    for name, row in (*rows.items(), ("all", sum(rows.values()))):
        print(f"| {name} | {' | '.join(map(str, row))} |")
    return int(sum(row[3] for row in rows.values()))
