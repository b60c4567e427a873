"""Tiny runs of every task and model, trained once for all tests of a worker."""

import functools
import json
import pathlib

import numpy as np

from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.training import checkpoints, loop, summary
from tbnets.training.optimizers import create_optimizer_variables
from tests import tiny, tiny_phrases, tiny_scenes
from tests.eager import without_tracing

FLAGS = {
    ("matching", "similarity"): {
        "epochs": 2,
        "head_units": "6,3",
        "dropout": 0.2,
        "head_dropout": 0.1,
    },
    ("matching", "cca"): {
        "text_encoder": "features",
        "text_features": "{split}_txt.npy",
        "cca_dim": 4,
    },
    ("matching", "hm_lstm"): {
        "epochs": 2,
        "images_per_batch": 16,
        "learning_rate": 0.02,
        "correspondence_epochs": 1,
        "equal_texts_match": True,
    },
    ("localization", "embedding"): {
        "loss": "wang2018_phrases",
        "num_negatives": 5,
        "regions_per_phrase": 2,
        "phrases_per_region": 2,
        "phrases_per_image": 3,
        "dropout": 0.1,
        "images": "images",
        "pairs_per_batch": 20,
        "learning_rate": 0.04,
        "structure_epochs": 1,
        "hard_negative_epochs": 2,
        "epochs": 4,
    },
    ("localization", "similarity"): {
        "head_units": "16",
        "dropout": 0,
        "pairs_per_batch": 30,
        "learning_rate": 0.02,
        "regions_per_phrase": 0,
        "candidates_per_image": 8,
        "num_candidates": 2,
        "hard_negative_epochs": 2,
        "epochs": 4,
    },
    ("localization", "cca"): {
        "text_encoder": "features",
        "text_features": "{split}_txt.npy",
        "cca_dim": 5,
        "candidates_per_image": 4,
    },
}
TREES = {
    "text_encoder": "h_lstm",
    "trees": "trees.jsonl",
    "rnn_units": 5,
    "epochs": 3,
}
"""Flags with which a run of captions reads them along trees."""


def write_captioned(folder):
    """Writes the data of `tiny`, counts of words, trees and word vectors."""
    tiny.write_precomputed(folder)
    trees = {}
    for split in tiny.SPLITS:
        captions = (folder / f"{split}_caps.txt").read_text().splitlines()
        counts = [
            [c.split().count(word) for word in tiny.WORDS] for c in captions
        ]
        np.save(folder / f"{split}_txt.npy", np.array(counts, "float32"))
        for caption in captions:
            first, *rest = caption.split()
            trees[caption] = f"(S (VB {first}) (NP {' '.join(rest)}))"
    rows = [
        {"id": str(row), "caption": caption, "tree": tree}
        for row, (caption, tree) in enumerate(trees.items())
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "trees.jsonl").write_text("".join(lines))
    vectors = np.random.default_rng(0).normal(size=(len(tiny.WORDS), 5))
    lines = [
        f"{word} {' '.join(map(str, row))}\n"
        for word, row in zip(tiny.WORDS, vectors)
    ]
    (folder / "vectors.txt").write_text("".join(lines))
    return folder


def prepared(settings, resume=False, queries=()):
    """Returns (session, training examples) of a new or resumed run."""
    return runs.prepare(settings, runs.start(settings, resume), queries)


def trained(settings, resume=False):
    """Trains a run; returns its session."""
    session, examples = prepared(settings, resume)
    loop.fit(session, examples)
    return session


def save(session, *names):
    """Writes checkpoints of the current state of a run."""
    network = session.network
    create_optimizer_variables(network.optimizer, network)
    for name in names or ("best", "last"):
        checkpoints.save_checkpoint(
            session.checkpoint(name), network, network.optimizer, session.state
        )
    return session


def begun(settings):
    """Returns a session of a run with checkpoints of its first weights."""
    return save(prepared(settings)[0])


def assert_same_weights(one, other):
    """Asserts that the weights of two networks are bitwise equal."""
    for first, second in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


class Run:
    """A finished run that tests share; do not change it.

    `session` has the weights of the best epoch; `held` has the values of the
    task at the end; `stopped` is a copy of the folder before the last epoch.
    """

    def __init__(self, settings):
        self.settings = settings
        self.run_dir = pathlib.Path(settings.run.run_dir)
        self.stopped = self.run_dir.with_name("stopped")
        self.session, self.examples = prepared(settings)
        self.described = summary.describe_run(self.session, self.examples)
        last = settings.epochs - 1
        copied = tiny.copied_after(last, self.run_dir, self.stopped)
        with without_tracing(), copied:
            loop.fit(self.session, self.examples)
            self.history = list(self.session.state.history)
            self.held = self.session.task.held
            self.report = runs.finish(self.session)

    @functools.cached_property
    def opened(self):
        """The session of the best epoch, opened again."""
        return runs.open_run(self.run_dir)

    @functools.cached_property
    def test(self):
        """The examples of the test split."""
        return self.opened.task.load("test", self.opened.state.fitted)

    @functools.cached_property
    def scores(self):
        """The scores of the test split."""
        return self.opened.task.scores(self.opened.network, self.test)

    @functools.cached_property
    def model(self):
        """The exported model."""
        return load_saved_model(runs.export(self.opened))


class Runs:
    """Trains each requested run once.

    Args:
        folder: folder for data and runs.
    """

    def __init__(self, folder):
        self.folder, self._runs = folder, {}

    @functools.cached_property
    def captioned(self):
        """The folder of `write_captioned`; do not change shared folders."""
        return write_captioned(self.folder / "captioned")

    @functools.cached_property
    def phrases(self):
        """The folder of `tiny_phrases.write_phrases`."""
        return tiny_phrases.write_phrases(self.folder / "phrases")

    @functools.cached_property
    def scenes(self):
        """The folder of `tiny_scenes.write_scenes`."""
        return tiny_scenes.write_scenes(self.folder / "scenes")

    def settings(
        self, run_dir, task="matching", model="embedding", /, **changes
    ):
        """Returns the settings of a run on data that all tests share."""
        flags = FLAGS.get((task, model), {"epochs": 2})
        flags = flags | {"model": model} | changes
        if model == "hm_lstm":
            return tiny_scenes.settings(self.scenes, run_dir, **flags)
        if task == "localization":
            return tiny_phrases.settings(self.phrases, run_dir, **flags)
        return tiny.settings(self.captioned, run_dir, **flags)

    def __call__(self, task="matching", model="embedding", **changes):
        """Returns the `Run` with these settings."""
        key = (task, model, *sorted(changes.items()))
        if key not in self._runs:
            run_dir = self.folder / "runs" / str(len(self._runs)) / "run"
            self._runs[key] = Run(
                self.settings(run_dir, task, model, **changes)
            )
        return self._runs[key]
