"""A run on features side by side becomes a folder of its branches alone."""

import contextlib
import json
import shutil

import pytest

from tbnets.serving import assembled, zoo
from tbnets.serving.checksums import ANSWERS
from tbnets.serving.saved_files import (
    hash_files,
    newest_version,
    read_metadata,
)
from tests import tiny, verbs
from tests.features import tiny_cnn
from tests.serving.test_photo_export import write_all
from tests.tools.test_make_zoo import CARD


@contextlib.contextmanager
def put_together_once(folder):
    """Keeps what is put together; the same part is then a copy of it."""
    put_together = assembled.put_together

    def put_or_copy(source, path):
        kept = folder / str(hash(repr(hash_files(newest_version(source)))))
        if not kept.exists():
            shutil.copytree(put_together(source, path), kept)
        return shutil.copytree(kept, path, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembled, "put_together", put_or_copy)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, module_eagerly):
    """A folder with a run, and a zoo that was made of it."""
    folder = tmp_path_factory.mktemp("made")
    known = tiny_cnn.known(lambda: folder / "cnn.weights.h5")
    with known, put_together_once(folder / "whole"):
        write_all(folder)
        line = tiny.arguments(
            folder,
            folder / "run",
            captions_format="table",
            captions="captions.csv",
            image_features="store,large",
            epochs=1,
        )
        trained = verbs.train(*(f"--{n}={v}" for n, v in line.items()))
        assert trained.returncode == 0, trained.stderr
        (folder / "card.md").write_text(CARD)
        told = verbs.ask(
            "make_zoo",
            *(f"--run_dir={folder / 'run'}", "--name=tiny", "--branches"),
            *(f"--zoo={folder / 'zoo'}", f"--card={folder / 'card.md'}"),
            *(f"--images={folder / 'photos'}", "--most_lost=5", "--table"),
        )
        assert told[2] == ""
        yield folder


def asked_by(path):
    """Returns what an exported model embeds images from."""
    signatures = read_metadata(path)["signatures"]
    return {*signatures["embed_image"]["inputs"]}


def test_the_branches_are_measured_as_a_whole(made, monkeypatch):
    monkeypatch.setenv("TBNETS_CACHE", str(made / "cache"))
    part = made / "zoo/tiny"
    metrics = json.loads((part / "metrics.json").read_text())
    assert metrics["takes"] == "photos"
    assert metrics["max_pixels"] == 80_000_000
    assert metrics["networks"] == [tiny_cnn.NAME] * 2
    assert asked_by(part / "1") == {"image_features"}
    monkeypatch.setattr(assembled, "TOLERANCE", 1e-5)
    answers = json.loads((part / ANSWERS).read_text())
    assert len(answers["photos"]) == 3 and len(answers["texts"]) == 2
    whole = zoo.locate(part)  # Its answers are compared.
    assert asked_by(whole / "1") == {"image_bytes"}
    report = json.loads((made / "run/metrics.json").read_text())
    lost = report["test"]["recall_sum"] - metrics["test"]["recall_sum"]
    assert abs(lost) < 5
