import numpy as np
import pytest

from tbnets.evaluation import retrieval
from tests import refusals


@pytest.fixture(scope="module")
def coco():
    """5000 images and 1 to 3 captions each, in any order."""
    generator = np.random.default_rng(0)
    images = generator.standard_normal((5000, 4)).astype(np.float32)
    rows = np.repeat(np.arange(5000), generator.integers(1, 4, 5000))
    rows = generator.permutation(rows)
    noise = generator.standard_normal((len(rows), 4)).astype(np.float32)
    return images, images[rows] + 0.2 * noise, rows


def test_coco_1k_averages_five_blocks_of_image_rows(coco):
    images, texts, rows = coco
    folds = []
    for start in range(0, 5000, 1000):
        inside = (rows >= start) & (rows < start + 1000)
        folds.append(
            retrieval.evaluate_retrieval(
                images[start : start + 1000],
                texts[inside],
                rows[inside] - start,
            )
        )
    metrics = retrieval.evaluate_protocol("coco_1k", *coco)
    assert metrics.keys() == folds[0].keys()
    for name, value in metrics.items():
        values = [fold[name] for fold in folds]
        combine = np.sum if name.endswith("num_queries") else np.mean
        assert value == pytest.approx(combine(values)), name
    assert metrics["text_to_image/num_queries"] == len(texts)


def test_coco_5k_is_the_whole_set(coco):
    options = {"text_to_text": False, "recall_at": (1, 7)}
    expected = retrieval.evaluate_retrieval(*coco, **options)
    for name in ("full", "coco_5k"):
        metrics = retrieval.evaluate_protocol(name, *coco, **options)
        assert metrics == expected


def test_fold_without_captions_is_refused(coco):
    images, texts, rows = coco
    with pytest.raises(ValueError, match="images 2000 to 2999"):
        retrieval.evaluate_protocol(
            "coco_1k", images, texts, np.where(rows // 1000 == 2, 0, rows)
        )


def test_groups_are_divided_like_their_images(coco):
    images, texts, rows = coco
    groups, inside = np.arange(5000) // 2, rows < 1000

    def evaluate(name, *arrays):
        return retrieval.evaluate_protocol(name, *arrays, text_to_text=False)

    metrics = evaluate("coco_1k", *coco, groups)
    first = evaluate(
        "full", images[:1000], texts[inside], rows[inside], groups[:1000]
    )
    plain = evaluate("coco_1k", *coco)
    assert metrics["recall_sum"] > plain["recall_sum"]
    assert metrics["recall_sum"] == pytest.approx(first["recall_sum"], rel=0.1)
    for bad in (groups[1:], groups - 1, groups / 2):
        with refusals.refused("image_groups"):
            retrieval.evaluate_protocol("full", *coco, bad)
