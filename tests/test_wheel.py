"""What pip makes of the repository holds the zoo and configurations."""

import json
import pathlib
import subprocess
import sys

import pytest
from zoo_making import cards

from tbnets.serving import zoo

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_built_package_has_the_zoo_and_every_configuration(tmp_path):
    pytest.importorskip("setuptools")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    built = tmp_path / "tbnets" / "model_zoo"
    wanted = zoo.list_files(ROOT / "model_zoo")
    found = zoo.list_files(built)
    assert found.keys() == wanted.keys()
    for name in zoo.names():
        zoo.check_files(built / name)
    for name in (
        *("__init__.pyi", "py.typed"),
        *("pictures/page.html", "scenes/README.txt"),
        *("server/demo/page.html", "server/demo/captions.txt"),
    ):
        original = (ROOT / "tbnets" / name).read_bytes()
        assert (tmp_path / "tbnets" / name).read_bytes() == original
    configs = {path.name for path in (ROOT / "configs").iterdir()}
    built = tmp_path / "tbnets" / "configs"
    assert {path.name for path in built.iterdir()} == configs


def test_the_zoo_of_a_clone_is_that_of_the_repository():
    assert zoo.folder() == ROOT / "model_zoo"


@pytest.mark.parametrize("name", zoo.names())
def test_each_model_is_as_published_and_small(name):
    path = ROOT / "model_zoo" / name
    zoo.check_files(path)
    assert cards.size(path) <= cards.MOST_BYTES
    assert (path / f"{name}.flags").is_file()
    metrics = json.loads((path / cards.METRICS).read_text("utf-8"))
    flagfile = metrics["command"].partition("--flagfile=")[2]
    assert (ROOT / flagfile).is_file()


def test_the_table_is_that_of_the_folders():
    page = (ROOT / "model_zoo" / "README.md").read_text("utf-8")
    assert page == cards.render_table(ROOT / "model_zoo"), (
        "run: python tools/make_zoo.py --table"
    )
