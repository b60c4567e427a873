import json

import numpy as np
import pytest

from tbnets.cli.evaluate import unit_rows
from tbnets.evaluation import retrieval, score_tiles
from tests import tiny, verbs


@pytest.fixture
def saved(tmp_path):
    """Three images, four captions; returns the folder."""
    np.save(tmp_path / "images.npy", np.eye(3, dtype=np.float32))
    texts = np.eye(3, dtype=np.float32)[[2, 0, 1, 2]]
    np.save(tmp_path / "texts.npy", texts)
    np.save(tmp_path / "rows.npy", np.array([2, 0, 1, 2]))
    return tmp_path


def line(folder, *more, rows=True):
    return (
        f"--image_embeddings={folder / 'images.npy'}",
        f"--text_embeddings={folder / 'texts.npy'}",
        *((f"--caption_to_image={folder / 'rows.npy'}",) if rows else ()),
        *more,
    )


def run(*arguments):
    return verbs.run("evaluate", *arguments)


def test_prints_a_table_and_writes_json(saved):
    path = saved / "metrics.json"
    result = run(*line(saved, f"--json={path}"))
    assert result.returncode == 0, result.stderr
    assert "recall sum 600.0" in result.stdout
    metrics = json.loads(path.read_text())
    assert metrics["image_to_text/recall_at_1"] == 1.0
    assert metrics["text_to_text/num_queries"] == 2.0


def test_positives_of_a_file_rank_and_have_precisions(saved):
    pairs = [[0, 1], [1, 2], [2, 0], [2, 3], [2, 2]]
    np.save(saved / "pairs.npy", np.array(pairs))
    flags = f"--positives={saved}/pairs.npy", f"--json={saved}/m.json"
    result = run(*line(saved, *flags, rows=False))
    # Image 2 finds two of its three; its third ties with the wrong one.
    assert "  R-Precision 88.9, mAP@R 88.9" in result.stdout
    metrics = json.loads((saved / "m.json").read_text())
    assert metrics["image_to_text/map_at_r"] == pytest.approx(8 / 9)
    # Caption 2 is of the images 1 and 2, and 0 comes before 2.
    assert metrics["text_to_image/r_precision"] == pytest.approx(7 / 8)


def test_rows_of_other_lengths_are_normalized(saved):
    np.save(saved / "texts.npy", np.float16(7 * np.load(saved / "texts.npy")))
    found = run(*line(saved, "--notext_to_text"))
    assert "recall sum 600.0" in found.stdout
    assert "text to text" not in found.stdout


def test_unit_rows_have_length_1_except_rows_of_zeros():
    rows = np.array([[3, 4], [0, 0], [-300, 400]], np.float16)
    found, _ = unit_rows(images=rows, texts=rows)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [-0.6, 0.8]])
    assert found.dtype == np.float32


def test_features_of_both_sides_are_joined_and_rank_by_cosines(tmp_path):
    folder = tiny.write_precomputed(tmp_path / "data")
    images = np.load(folder / "test_ims.npy")
    texts = np.random.default_rng(1).normal(size=(12, 8)).astype("float16")
    np.save(folder / "texts.npy", texts)
    # The images in another order, to be found by their ids.
    ids = (folder / "test_ids.txt").read_text().split()
    np.save(folder / "images.npy", images[::-1])
    (folder / "images_ids.txt").write_text("\n".join(ids[::-1]) + "\n")
    more = f"--save_embeddings={tmp_path}"
    found = measured(folder, "images.npy", "texts.npy", more)
    assert found == retrieval.evaluate_retrieval(
        *unit_rows(images=images, texts=texts), np.arange(12) // 2
    )
    saved = np.load(tmp_path / "image_embeddings.npy")
    np.testing.assert_allclose(np.linalg.norm(saved, axis=1), 1, rtol=1e-6)


def measured(folder, images, texts, *more):
    """Returns the metrics of two files of features in a folder of captions."""
    found = run(
        f"--data_root={folder}",
        "--captions=.",
        f"--image_features={images}",
        f"--text_features={texts}",
        f"--json={folder / 'metrics.json'}",
        *more,
    )
    assert found.returncode == 0, found.stderr
    return json.loads((folder / "metrics.json").read_text())


def test_features_are_normalized_with_a_query_bank(tmp_path):
    folder = tiny.write_precomputed(tmp_path / "data")
    sides = []
    for split in ("test", "train"):
        images = np.load(folder / f"{split}_ims.npy")
        rng = np.random.default_rng(len(images))
        texts = rng.normal(size=(2 * len(images), 8)).astype("float32")
        np.save(folder / f"{split}_texts.npy", texts)
        sides.append(unit_rows(images=images, texts=texts))
    files = "{split}_ims.npy", "{split}_texts.npy"
    found = measured(folder, *files, "--query_bank=train")
    scores = score_tiles.distance_scores(*map(np.concatenate, zip(*sides)))
    scores = score_tiles.normalize(scores, *map(len, sides[0]))
    assert found == score_tiles.evaluate_scores(scores, np.arange(12) // 2)
