"""One folder of good and broken photos, judged alike by every tool."""

import json
import os

import pytest

from tbnets.data.store.reader import open_store
from tests import photo_files, verbs
from tests.cli.test_query import write_networks
from tests.features import tiny_cnn

NAMES = [*photo_files.CONTENTS, "link.jpg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, module_eagerly):
    """The photos, and captions that name them all."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "photos").mkdir()
    photo_files.write_all(folder / "photos")
    rows = [f"{name},a dog,train\n" for name in NAMES]
    (folder / "captions.csv").write_text(
        "image,caption,split\n" + "".join(rows), encoding="utf-8"
    )
    return folder


def run(name, *arguments, code=0):
    """Returns what a tool prints, and its errors."""
    ended = verbs.run(name, *arguments)
    assert ended.returncode == code, ended.stderr
    return ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("verb", "module", "named_by"),
    [
        ("extract_image_features", "numpy", "folder"),
        ("propose_regions", "cv2", "captions"),
    ],
)
def test_commands_skip_broken_photos(folder, tmp_path, verb, module, named_by):
    pytest.importorskip(module)
    line = [f"--images={folder / 'photos'}", f"--output={tmp_path / 'store'}"]
    if named_by == "captions":
        line += [f"--captions={folder / 'captions.csv'}"]
    if verb == "extract_image_features":
        line += [f"--cnn={tiny_cnn.NAME}", "--cnn_weights=random"]
        line += ["--layers=full_network", "--dtype=float16"]
    with tiny_cnn.known():
        output, errors = run(verb, *line)
    assert errors == ""
    found = photo_files.reasons(output.splitlines(), folder / "photos")
    photo_files.assert_all_left_out(found)
    store = open_store(tmp_path / "store")
    assert sorted(store.ids) == photo_files.PHOTOS
    assert store.failed == found
    if verb == "extract_image_features":
        assert (store.dim, store.manifest.dtype) == (18, "float16")
    assert f"{len(store.ids)} in the store, {len(found)} left out" in output


def test_query_leaves_out_broken_photos(folder, tmp_path):
    write_networks(tmp_path, "bytes")
    line = f"--images={folder / 'photos'}", f"--model={tmp_path}/bytes", "red"
    output, errors = run("query", *line, "--top=20")
    *lines, last = errors.splitlines()
    found = photo_files.reasons(lines, folder / "photos")
    photo_files.assert_all_left_out(found)
    assert len(lines) == len(photo_files.REASONS)
    assert last == f"{len(lines)} of {len(NAMES)} files left out"
    *table, _, _ = output.splitlines()
    answers = [line.split(None, 2)[2] for line in table[2:]]
    assert sorted(answers) == photo_files.PHOTOS


def test_describe_data_reports_broken_photos(folder, tmp_path):
    _, errors = run(
        "describe_data",
        f"--images={folder / 'photos'}",
        f"--captions={folder / 'captions.csv'}",
        f"--json={tmp_path / 'found.json'}",
        code=1,
    )
    assert errors == ""
    report = json.loads((tmp_path / "found.json").read_text("utf-8"))
    found = {}
    for problem in report["problems"]:
        name = os.path.relpath(problem["path"], folder / "photos")
        found[name] = problem["message"]
    photo_files.assert_all_left_out(found)
