"""Readers of what a training leaves: checkpoints, runs, models, the zoo."""

import json
import os
import shutil
import types

import numpy as np

from tbnets.errors import InputError
from tbnets.serving import checksums, embedding_cache, zoo
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tbnets.tasks import registry, runs
from tbnets.tasks.settings import records
from tbnets.training import checkpoints, summary
from tests import tiny
from tests.fuzz.reader import Reader
from tests.serving.test_export import VOCABULARY, make_network


def _write_run(folder):
    """Writes a run of one epoch that was never trained."""
    data = tiny.write_precomputed(folder / "data")
    settings = tiny.settings(data, folder / "run", epochs=1)
    session, _ = runs.prepare(settings, runs.start(settings, False))
    session.state.epoch = session.state.best_epoch = 1
    row = {"seconds": 1.0, "dev/mean_recall": 0.5, "loss": 0.1}
    session.state.history = [row]
    for name in ("best", "last"):
        checkpoints.save_checkpoint(
            session.checkpoint(name), session.network, None, session.state
        )
    report = json.dumps({"epochs": 1, "best_epoch": 1})
    (folder / "run/metrics.json").write_text(report)


def _read_run(folder):
    run = folder / "run"
    record = records.read_record(run)
    settings = registry.settings_of(runs.record_before(run))
    records.check_resumable(record, settings, run)
    finished = summary.finished(settings, run)
    arrays, names, state = checkpoints.read_checkpoint(
        run / "checkpoints/best.npz"
    )
    session = runs.open_run(run)
    weights = session.network.get_weights()
    used = vars(session.state), session.settings.values()
    return record, finished, arrays, names, vars(state), weights, used


def _write_model(folder):
    network = make_network()
    export_saved_model(network, VOCABULARY, folder / "1", image_shape=(5,))


def _ask_model(folder):
    model = load_saved_model(folder)
    words = model.vocabulary and model.vocabulary.words
    texts = model.embed_text(["a dog", "", "snow"])
    images = model.embed_images(np.eye(2, 5, dtype=np.float32))
    found = model.similarity(np.ones((2, 5)), ["a dog"])
    return words, texts, images, found, model.metadata


def _write_zoo(folder):
    model = folder / "tiny"
    (model / "1").mkdir(parents=True)
    (model / "1/saved_model.pb").write_bytes(b"graph")
    (model / "metrics.json").write_text('{"test": {"recall_sum": 300.0}}')
    checksums.write_checksums(model)


def _check_zoo(folder):
    zoo.check_files(folder / "tiny")
    read = checksums.read_checksums(folder / "tiny")
    return read, [(folder / "tiny" / name).read_bytes() for name in read]


NAMES = [f"{number}.jpg" for number in range(4)]


def _write_cache(folder):
    (folder / "model/variables").mkdir(parents=True)
    (folder / "model/saved_model.pb").write_bytes(b"graph")
    for name in NAMES:
        (folder / name).write_text(name)
        os.utime(folder / name, (1e9, 1e9))

    def try_images(contents):
        return np.eye(4, 3, dtype=np.float32), ["", "", "", "is empty"]

    _embed(folder, "cache", try_images)


def _embed(folder, cache, try_images):
    model = types.SimpleNamespace(
        path=folder / "model", embedding_dim=3, try_images=try_images
    )
    saved = embedding_cache.EmbeddingCache(model, folder, folder / cache)
    return saved.embed({name: folder / name for name in NAMES})


def _read_cache(folder):
    """Reads a copy of the cache, because damaged stores are removed."""
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "cache", folder / "copy")

    def try_images(contents):
        raise InputError(f"{folder}: expected an undamaged cache")

    return _embed(folder, "copy", try_images)


RUN = ("run/settings.json", "run/metrics.json", "run/checkpoints/best.npz")
READERS = {
    "run": Reader(_write_run, RUN, _read_run, cost=4),
    "saved_model": Reader(
        _write_model,
        ("1/assets.extra/tbnets.json",),
        _ask_model,
        sealed=("1/*.pb", "1/variables/*", "1/assets.extra/vocabulary.txt"),
        cost=13,
    ),
    "zoo_checksums": Reader(
        _write_zoo,
        ("tiny/sha256.txt",),
        _check_zoo,
        sealed=("tiny/metrics.json", "tiny/1/*"),
    ),
    "cache": Reader(
        _write_cache,
        ("cache/files.json", "cache/embeddings-*/manifest.json"),
        _read_cache,
        sealed=("cache/embeddings-*/*s.*",),
    ),
}
