"""Readers of what a training leaves: checkpoints, runs, models, the zoo."""

import functools
import hashlib
import json
import types

import numpy as np
from measuring import ambiguity
from zoo_making import cards

from tbnets import tasks
from tbnets.data.scenes import dataset as scenes
from tbnets.data.scenes.dataset import RECORDS
from tbnets.data.scenes.layout import SceneSettings
from tbnets.features import photo_cache
from tbnets.serving import checksums, photo_index, zoo
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.tasks.settings import records
from tbnets.training import checkpoints, summary
from tests import tiny
from tests.fuzz.array_readers import header_of, with_header
from tests.fuzz.reader import Reader, write_once
from tests.serving.test_export import VOCABULARY, make_network

METRICS = {
    "takes": "features",
    "embedding_dim": 4,
    "test": {
        f"{way}/{name}": 0.5
        for way in ("image_to_text", "text_to_image")
        for name in (*(f"recall_at_{k}" for k in (1, 5, 10)), "median_rank")
    }
    | {"recall_sum": 300.0, "mean_recall": 0.5},
    "run_recall_sum": 300.5,
    "best_epoch": 2,
    "epochs": 3,
    "train_seconds": 100.0,
    "dev": {"recall_sum": 301.0},
    "test_split": {"name": "test", "images": 6, "captions": 12},
    "versions": {"tensorflow": "2.21.0", "keras": "3.15.0"},
    "date": "2026-01-02",
    "command": "python tools/train.py --flagfile=configs/tiny.flags",
}
SCENES = SceneSettings(2, 1, 1)
CARD = """# tiny

Tells what is alike.

## Data and terms

Made up.

## Not for

Anything.

"""


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


def _open_run(folder):
    session = runs.open_run(folder / "run")
    state = vars(session.state)
    return session.network.get_weights(), state, session.settings.values()


def _read_settings(folder):
    run = folder / "run"
    record = records.read_record(run)
    records.check_resumable(record, tasks.settings_of(record), run)
    return record, _open_run(folder)[0]


def _read_metrics(folder):
    settings = tasks.settings_of(runs.record_before(folder / "run"))
    return summary.finished(settings, folder / "run")


def _read_checkpoint(folder):
    path = folder / "run/checkpoints/best.npz"
    arrays, names, state = checkpoints.read_checkpoint(path)
    return arrays, names, vars(state), _open_run(folder)[0]


def _write_model(folder):
    network = make_network((5,))
    export_saved_model(network, VOCABULARY, folder / "1", image_shape=(5,))


def _ask_model(folder):
    model = load_saved_model(folder)
    words = model.vocabulary and model.vocabulary.words
    texts = model.embed_text(["a dog", "", "snow"])
    images = model.embed_images(np.eye(2, 5, dtype=np.float32))
    found = model.similarity(np.ones((2, 5)), ["a dog"])
    return words, texts, images, found, model.metadata


def _model(file, in_suite=3):
    write = functools.partial(write_once, _write_model)
    return Reader(write, f"1/{file}", _ask_model, in_suite=in_suite)


def _write_zoo(folder):
    model = folder / "tiny"
    (model / "1").mkdir(parents=True)
    (model / "1/saved_model.pb").write_bytes(b"graph")
    (model / "metrics.json").write_text(json.dumps(METRICS, indent=1))
    card = cards.render_card("tiny", CARD.rstrip(), METRICS)
    (model / "README.md").write_text(card, "utf-8")
    checksums.write_checksums(model)


def _check_zoo(folder):
    zoo.check_files(folder / "tiny")
    return checksums.read_checksums(folder / "tiny")


def _render_zoo(folder):
    text = cards.own_text(folder / "tiny/README.md")
    return text, cards.summary(text), cards.render_table(folder)


def _write_index(folder):
    made = _index(folder)
    for number in range(3):
        row = np.full(3, number, np.float32)
        entry = photo_index.Entry((100 + number, 10**18), row)
        made.add({f"{number}.jpg": entry})
    made.add({"x.jpg": photo_index.Entry((5, 6), None, "is empty")})
    made.save()
    (path,) = made.place.iterdir()
    path.rename(path.with_name("1" + path.suffix))


def _read_index(folder):
    return _index(folder).entries


def _index(folder):
    (folder / "model/variables").mkdir(parents=True, exist_ok=True)
    (folder / "model/saved_model.pb").write_bytes(b"graph")
    model = types.SimpleNamespace(path=folder / "model", embedding_dim=3)
    return photo_index.Index(folder / "cache", model)


_HASH = "ab" * 32
_GRAPH = hashlib.sha256(b"graph").hexdigest()
_MODEL = hashlib.sha256(f"{_GRAPH}  saved_model.pb\n".encode()).hexdigest()


def _write_photo_hashes(folder):
    known = {f"{i}.jpg": [100 + i, 10**18, _HASH] for i in range(3)}
    (folder / "photos.json").write_text(json.dumps(known))


def _read_photo_hashes(folder):
    return photo_cache._read_index(folder / "photos.json")


def _write_scenes(folder):
    scenes.ensure_scenes(folder / "scenes", SCENES)


def _read_scenes(folder):
    path = folder / "scenes"
    made = scenes.ensure_scenes(path, SCENES)
    return made, ambiguity.read_records(path / RECORDS, "train")


_CHECKPOINT = "run/checkpoints/best.npz"
_RUN = functools.partial(write_once, _write_run)
READERS = {
    "settings": Reader(_RUN, "run/settings.json", _read_settings, in_suite=6),
    "metrics": Reader(_RUN, "run/metrics.json", _read_metrics, in_suite=20),
    "checkpoint": Reader(_RUN, _CHECKPOINT, _read_checkpoint, in_suite=6),
    "checkpoint_header": Reader(
        _RUN,
        _CHECKPOINT,
        _read_checkpoint,
        part=header_of,
        whole=with_header,
        in_suite=6,
    ),
    "saved_model_graph": _model("saved_model.pb"),
    "saved_model_index": _model("variables/variables.index"),
    "saved_model_variables": _model(
        "variables/variables.data-00000-of-00001", 0
    ),
    "saved_model_metadata": _model("assets.extra/tbnets.json"),
    "saved_model_vocabulary": _model("assets.extra/vocabulary.txt"),
    "zoo_checksums": Reader(_write_zoo, "tiny/sha256.txt", _check_zoo),
    "zoo_metrics": Reader(_write_zoo, "tiny/metrics.json", _render_zoo),
    "zoo_card": Reader(_write_zoo, "tiny/README.md", _render_zoo),
    "search_index": Reader(
        _write_index,
        f"cache/embeddings/{_MODEL[:16]}/1{photo_index.SUFFIX}",
        _read_index,
    ),
    "photo_hashes": Reader(
        _write_photo_hashes, "photos.json", _read_photo_hashes
    ),
    "scenes_manifest": Reader(
        _write_scenes, f"scenes/{scenes.MANIFEST}", _read_scenes
    ),
    "scenes_records": Reader(_write_scenes, f"scenes/{RECORDS}", _read_scenes),
}
