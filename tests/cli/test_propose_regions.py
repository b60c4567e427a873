"""Tests of the tool that proposes boxes."""

import PIL.Image
import pytest

from tbnets.data.scenes.dataset import ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.store.reader import open_features
from tests import verbs

pytest.importorskip("cv2", reason="needs the extra: tbnets[regions]")


def test_propose_regions_prints_recall_and_draws(tmp_path):
    folder = tmp_path / "scenes"
    ensure_scenes(folder, SceneSettings(0, 0, 3))
    picture = tmp_path / "new" / "picture.png"
    output = verbs.printed(
        "propose_regions",
        f"--images={folder / 'images'}",
        f"--captions={folder / 'dataset.json'}",
        "--splits=test",
        f"--recall={folder / 'Annotations'}",
        "--recall_at=1,50",
        f"--output={tmp_path / 'store'}",
        f"--picture={picture}",
        "--limit=60",
    )
    assert "3 in the store" in output
    lines = [line.split() for line in output.splitlines() if "first" in line]
    (_, first, _, low, *_), (_, second, _, high, *_) = lines
    assert (first, second) == ("1", "50")
    assert 0 <= float(low) < float(high) <= 100
    assert 0 <= float(lines[0][-1]) < float(lines[1][-1])
    store = open_features(tmp_path / "store")
    assert len(store) == 3 and store.extraction["limit"] == 60
    assert store.sizes.tolist() == [[96, 96]] * 3
    with PIL.Image.open(picture) as image:
        assert image.size == (3 * 336 + 16, 336 + 16 + 24)
