"""Commands answer alike by LiteRT and by TensorFlow."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tbnets import lite
from tbnets.cli import model_flags
from tbnets.cli.query import Options
from tbnets.errors import InputError, MissingPackageError
from tbnets.serving.checksums import FORMAT
from tbnets.serving.index_writer import IndexWriter
from tests import fresh, verbs

PHOTOS = str(pathlib.Path(fresh.ROOT, "docs/photos"))
SENTENCES = ["a cat looks at the camera", "a building behind trees"]


@pytest.fixture(scope="module", autouse=True)
def model_of_the_zoo(interpreter):
    """Skips the tests if TensorFlow's interpreter is older than the model."""
    try:
        lite.load("flickr8k_photos")
    except ValueError as error:
        if "older version" not in str(error):
            raise
        pytest.skip("needs ai-edge-litert: TensorFlow's interpreter is old")


def test_both_runtimes_answer_alike(tmp_path):
    records, photos = [], tmp_path / "photos"
    photos.mkdir()
    for name in ("cat.jpg", "coffee.jpg", "palace.jpg"):
        shutil.copy(pathlib.Path(PHOTOS, name), photos)
    for runtime in "litert", "tensorflow":
        words = ("--json=-", f"--runtime={runtime}")
        said, _, failure = verbs.ask("query", photos, *SENTENCES, *words)
        assert not failure
        records.append(json.loads(said)["queries"])
    for queries in zip(*records):
        first, second = (
            {each["image"]: each["similarity"] for each in query["answers"]}
            for query in queries
        )
        assert [*first][0] == [*second][0]
        for image in first.keys() & second.keys():
            assert abs(first[image] - second[image]) < 0.05


@pytest.mark.parametrize(
    ("model", "runtime", "is_installed", "expected"),
    [
        ("flickr8k_photos", "auto", True, lite.Model),
        ("flickr8k_photos", "auto", False, "Served"),
        ("flickr8k_photos", "litert", True, lite.Model),
        ("flickr8k_photos", "litert", False, None),
        ("flickr8k_photos", "tensorflow", True, "Served"),
        ("scenes_embedding", "auto", True, "Served"),
    ],
)
def test_runtime_depends_on_the_flag_the_package_and_the_model(
    monkeypatch, model, runtime, is_installed, expected
):
    def import_extra(extra, module):
        raise MissingPackageError(module, name=module)

    if not is_installed:
        monkeypatch.setattr(lite, "import_extra", import_extra)
    monkeypatch.setattr(model_flags.zoo, "open_model", lambda *_: "Served")
    monkeypatch.setattr(model_flags, "check_model", lambda model, *_: model)
    options = Options(model=model, runtime=runtime)
    if expected is None:
        with pytest.raises(MissingPackageError):
            options.open({})
        return
    opened = options.open({})
    assert opened == expected or isinstance(opened, expected)


def test_a_model_without_litert_is_an_error():
    with pytest.raises(FileNotFoundError, match="litert"):
        Options(model="scenes_embedding", runtime="litert").open({})


def test_an_index_of_another_runtime_is_an_error(tmp_path):
    about = {"format": FORMAT, "model": "0" * 64, "embedding_dim": 512}
    with IndexWriter(tmp_path / "index", about, 512) as writer:
        writer.put(["cat.jpg"], np.eye(1, 512, dtype=np.float32))
    words = (f"--index={tmp_path / 'index'}", "a cat", "--runtime=litert")
    with pytest.raises(InputError):
        verbs.call("query", *words)


def test_a_query_imports_no_tensorflow(tmp_path):
    pytest.importorskip("ai_edge_litert")
    code = (
        "import sys\n"
        "from tbnets.cli import query\n"
        f"query.main(query.Options(images={PHOTOS!r}, cache={str(tmp_path)!r},"
        " queries=['a cat']))\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=fresh.ROOT, check=True)
