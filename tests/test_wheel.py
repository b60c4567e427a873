"""What a release uploads is whole, and holds the zoo and configurations."""

import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
from zoo_making import cards

from tbnets import __version__ as VERSION
from tbnets.serving import zoo

ROOT = pathlib.Path(__file__).resolve().parent.parent


# Does what `python -m build` does, but does not compress its 69 MB.
BUILD = """
import os, sys, tarfile, tempfile, zlib
import setuptools.build_meta as backend

compressor = zlib.compressobj
zlib.compressobj = lambda level, *others: compressor(0, *others)
output = sys.argv[1]
sdist = os.path.join(output, backend.build_sdist(output))
with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(sdist) as source:
        source.extractall(folder)
    os.chdir(os.path.join(folder, *os.listdir(folder)))
    backend.build_wheel(output)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What a release uploads: an sdist, and a wheel that is made of it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-c", BUILD, folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """The package of the wheel, as pip would lay it down."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_built_package_has_the_zoo_and_every_configuration(installed):
    built = installed / "tbnets" / "model_zoo"
    wanted = zoo.model_files(ROOT / "model_zoo")
    found = zoo.model_files(built)
    assert found.keys() == wanted.keys()
    for name in zoo.names():
        zoo.check_files(built / name)
    for name in (
        *("__init__.pyi", "py.typed"),
        *("visualization/page.html", "data/scenes/README.txt"),
        *("extras/demo/page/page.html", "extras/demo/page/captions.txt"),
        "serving/allowed_ops.txt",
    ):
        original = (ROOT / "tbnets" / name).read_bytes()
        assert (installed / "tbnets" / name).read_bytes() == original
    found = {path.name for path in (installed / "tbnets/configs").iterdir()}
    assert found == {path.name for path in (ROOT / "configs").iterdir()}


TOLD = """
import tbnets
from tbnets.tasks.settings.flag import find_flagfile
print(tbnets.__version__, tbnets.zoo.folder(), find_flagfile("quickstart"))
"""


def test_the_built_package_works_without_the_repository(installed):
    told = subprocess.run(
        [sys.executable, "-c", TOLD],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    package = installed / "tbnets"
    config = package / "configs" / "quickstart.flags"
    assert told == [VERSION, str(package / "model_zoo"), str(config)]


def test_the_source_distribution_has_no_tests_and_no_leftovers(dist):
    with tarfile.open(dist / f"tbnets-{VERSION}.tar.gz") as source:
        names = {pathlib.PurePath(one.name) for one in source if one.isfile()}
    inside = {path.parts[1] for path in names}
    assert {"tbnets", "configs", "model_zoo", "LICENSE", "setup.py"} <= inside
    assert not inside & {"tests", "docs", "runs", "out", ".git"}
    assert not any(path.suffix == ".pyc" for path in names)


def test_zoo_of_a_clone_is_the_repository_folder():
    assert zoo.folder() == ROOT / "model_zoo"


@pytest.mark.parametrize("name", zoo.names())
def test_each_model_is_as_published_and_small(name):
    path = ROOT / "model_zoo" / name
    zoo.check_files(path)
    assert cards.size(path) <= cards.MOST_BYTES
    assert (path / f"{name}.flags").is_file()


def test_zoo_table_lists_all_folders():
    page = (ROOT / "model_zoo" / "README.md").read_text("utf-8")
    assert page == cards.render_table(ROOT / "model_zoo"), (
        "run: python tools/make_zoo.py --table"
    )
