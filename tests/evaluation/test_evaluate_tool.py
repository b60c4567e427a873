import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests import verbs

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def saved(tmp_path):
    """Three images, four captions; returns the folder."""
    np.save(tmp_path / "images.npy", np.eye(3, dtype=np.float32))
    texts = np.eye(3, dtype=np.float32)[[2, 0, 1, 2]]
    np.save(tmp_path / "texts.npy", texts)
    np.save(tmp_path / "rows.npy", np.array([2, 0, 1, 2]))
    return tmp_path


def line(folder, *more, rows="rows.npy"):
    return (
        f"--image_embeddings={folder / 'images.npy'}",
        f"--text_embeddings={folder / 'texts.npy'}",
        f"--caption_to_image={folder / rows}",
        *more,
    )


def run(*arguments):
    return verbs.run("evaluate", *arguments)


def test_prints_a_table_and_writes_json(saved):
    path = saved / "metrics.json"
    result = subprocess.run(
        [sys.executable, "tools/evaluate.py", *line(saved, f"--json={path}")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "recall sum 600.0" in result.stdout
    metrics = json.loads(path.read_text())
    assert metrics["image_to_text/recall_at_1"] == 1.0
    assert metrics["text_to_text/num_queries"] == 2.0


def test_text_file_of_rows(saved):
    (saved / "rows.txt").write_text("2\n0\n1\n2\n\n")
    result = run(*line(saved, "--notext_to_text", rows="rows.txt"))
    assert (result.returncode, result.stderr) == (0, "")
    assert "recall sum 600.0" in result.stdout
    assert "text to text" not in result.stdout


def fails_with(result, *texts):
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    for text in texts:
        assert text in result.stderr


def test_bad_line_is_named(saved):
    (saved / "rows.txt").write_text("2\n0.0\n1\n2\n")
    result = run(*line(saved, rows="rows.txt"))
    fails_with(result, "rows.txt, line 2: expected", "found '0.0'")


def test_nan_is_refused_and_old_json_kept(saved):
    images = np.eye(3)
    images[1, 2] = np.nan
    np.save(saved / "images.npy", images)
    (saved / "old.json").write_text("{}")
    result = run(*line(saved, f"--json={saved / 'old.json'}"))
    fails_with(result, "image_embeddings[1, 2]=nan")
    assert (saved / "old.json").read_text() == "{}"


def test_wrong_protocol_is_explained(saved):
    found = run(*line(saved, "--protocol=coco_5k"))
    fails_with(found, "5000 rows", "3 images")


def test_missing_flags_are_named():
    fails_with(
        run("--image_embeddings=a.npy"),
        "--text_embeddings, --caption_to_image must be given",
    )


@pytest.mark.parametrize(
    "flags, texts",
    [
        (["--map_images=9"], ["`--map_images` must come with --map"]),
        (
            ["--run_dir=absent", "--map=absent/map.png"],
            ["`--map` must be a file in a folder that is there"],
        ),
        (["--map=map.png"], ["--map=map.png, which is read with --run_dir"]),
    ],
)
def test_maps_that_can_not_be_drawn_are_refused(flags, texts):
    fails_with(run(*flags), *texts)


def test_help_shows_an_example():
    result = run("--help")
    assert "python tools/evaluate.py" in result.stdout
    assert "--caption_to_image=caption_to_image.npy" in result.stdout
