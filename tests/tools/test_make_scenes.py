import pytest

from tests import verbs

FEW = ("--num_train=5", "--num_dev=1", "--num_test=2", "--image_size=48")


def make(*arguments):
    return verbs.run("make_scenes", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that the command wrote."""
    path = tmp_path_factory.mktemp("tool") / "scenes"
    result = make(f"--folder={path}", *FEW)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "Wrote 5 training, 1 dev and 2 test scenes" in result.stdout
    assert f"--captions={path}/dataset.json" in result.stdout
    # The run that the quickstart left is another.
    assert "--run_dir=runs/scenes_own" in result.stdout
    return path


def test_make_scenes_reuses_scenes(folder):
    result = make(f"--folder={folder}", *FEW)
    assert result.returncode == 0, result.stderr
    assert "Found 5 training" in result.stdout
