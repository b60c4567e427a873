import numpy as np
import pytest
from PIL import Image

from tests import verbs

FEW = ("--num_train=5", "--num_dev=1", "--num_test=2", "--image_size=48")


def make(*arguments):
    return verbs.run("make_scenes", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that the tool wrote, with its contact sheet beside it."""
    path = tmp_path_factory.mktemp("tool") / "scenes"
    sheet = path.parent / "plain.png"
    line = (f"--folder={path}", *FEW, f"--contact_sheet={sheet}")
    result = make(*line)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "Wrote 5 training, 1 dev and 2 test scenes" in result.stdout
    assert f"--captions={path}/dataset.json" in result.stdout
    # The run that the quickstart left is another.
    assert "--run_dir=runs/scenes_own" in result.stdout
    return path


def test_make_scenes_reuses_scenes_and_draws_boxes(folder, tmp_path):
    sheet = tmp_path / "new" / "boxes.png"
    arguments = (f"--folder={folder}", *FEW, f"--contact_sheet={sheet}")
    result = make(*arguments, "--draw_boxes")
    assert result.returncode == 0, result.stderr
    assert "Found 5 training" in result.stdout
    assert str(sheet) in result.stdout
    with Image.open(sheet) as image:
        # Four of train, the one of dev, two of test: two rows of four cells.
        assert image.size == (4 * 456 + 16, 2 * 636 + 16 + 24)
        boxes = np.asarray(image)
    with Image.open(folder.parent / "plain.png") as image:
        differ = (boxes != np.asarray(image)).any(axis=-1)
    # Two or more boxes a scene, 7 pixels wide, each some 300 pixels around.
    assert differ.sum() > 7 * 2 * 7 * 150
