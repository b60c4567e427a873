import numpy as np
import pytest

from tbnets.evaluation import retrieval, score_tiles


@pytest.fixture
def coco(monkeypatch):
    """50 images, as if these were MSCOCO, with 1 to 3 captions in any order."""
    for name, folds in (("coco_1k", 5), ("coco_5k", 1)):
        protocol = retrieval.Protocol(50, folds, "")
        monkeypatch.setitem(retrieval.PROTOCOLS, name, protocol)
    generator = np.random.default_rng(0)
    images = generator.standard_normal((50, 4)).astype(np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    rows = np.repeat(np.arange(50), generator.integers(1, 4, 50))
    rows = generator.permutation(rows)
    noise = generator.standard_normal((len(rows), 4)).astype(np.float32)
    texts = images[rows] + 0.5 * noise
    return images, texts / np.linalg.norm(texts, axis=1, keepdims=True), rows


@pytest.mark.parametrize("images_per_group", [1, 2])
def test_coco_1k_averages_five_blocks_of_image_rows(coco, images_per_group):
    images, texts, rows = coco
    groups, folds = np.arange(50) // images_per_group, []
    for start in range(0, 50, 10):
        block = slice(start, start + 10)
        inside = rows // 10 == start // 10
        arrays = images[block], texts[inside], rows[inside] - start
        folds.append(
            retrieval.evaluate_protocol("full", *arrays, groups[block])
        )
    metrics = retrieval.evaluate_protocol("coco_1k", *coco, groups)
    assert metrics.keys() == folds[0].keys()
    for name, value in metrics.items():
        values = [fold[name] for fold in folds]
        combine = np.sum if name.endswith("num_queries") else np.mean
        assert value == pytest.approx(combine(values)), name
    assert metrics["text_to_image/num_queries"] == len(texts)
    scores = score_tiles.distance_scores(images, texts)
    arguments = "coco_1k", scores, rows, groups
    found = retrieval.evaluate_scores_protocol(*arguments)
    assert found == pytest.approx({name: metrics[name] for name in found})
    assert {*metrics} - {*found} == {k for k in metrics if "text_to_text" in k}


def test_a_fold_without_captions_raises_an_error(coco):
    images, texts, rows = coco
    with pytest.raises(ValueError, match="text_embeddings"):
        retrieval.evaluate_protocol(
            "coco_1k", images, texts, np.where(rows // 10 == 2, 0, rows)
        )
