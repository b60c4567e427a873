"""Cards, tables and `metrics.json` of models of the zoo."""

import json

import numpy as np
import pytest
from zoo_making import cards

from tbnets.errors import InputError
from tbnets.evaluation import tables
from tbnets.evaluation.retrieval import evaluate_retrieval
from tests.tools.test_make_zoo import CARD

TEST = {"recall_sum": 100.0} | {
    f"{direction}/{name}": 0.5
    for direction in tables.DIRECTIONS[:2]
    for name in ("recall_at_1", "recall_at_10", "median_rank")
}
REPORT = {
    "best_epoch": 1,
    "epochs": 2,
    "train_seconds": 90,
    "dev": {},
    "test": TEST,
    "test_split": {"name": "test", "images": 2},
    "versions": {"tensorflow": "2", "keras": "3"},
}
METRICS = REPORT | {
    "takes": "photos",
    "embedding_dim": 4,
    "run_recall_sum": 100.0,
    "date": "2026-01-02",
    "command": "python tools/train.py",
}
LOCALIZED = {
    "phrase_to_region/recall_at_1": 0.25,
    "phrase_to_region/recall_at_5": 0.5,
    "phrase_to_region/recall_at_10": 0.75,
    "phrase_to_region/upper_bound": 0.875,
    "phrase_to_region/mean_average_precision": 0.125,
    "phrase_to_region/num_queries": 8.0,
}


@pytest.mark.parametrize(
    ("metrics", "titles", "numbers"),
    [
        (
            evaluate_retrieval(np.eye(12), np.eye(12), range(12)),
            "image to text R@1 | R@5 | R@10 | MedR "
            "| text to image R@1 | R@5 | R@10 | MedR | recall sum",
            "100.0 | 100.0 | 100.0 | 1 | 100.0 | 100.0 | 100.0 | 1 | 600.0",
        ),
        (
            LOCALIZED,
            "R@1 | R@5 | R@10 | bound | mAP | phrases",
            "25.0 | 50.0 | 75.0 | 87.5 | 12.5 | 8",
        ),
        ({"score": -0.25, "count": 12.0}, "score | count", "-0.25 | 12"),
    ],
)
def test_a_row_has_the_numbers_of_its_titles(metrics, titles, numbers):
    rows = [("a", metrics, "it is", "2 MB")]
    head, rule, row = cards.markdown_table(
        rows, {"what": "---", "size": "---:"}
    ).splitlines()
    assert head == f"| model | {titles} | what | size |"
    assert row == f"| a | {numbers} | it is | 2 MB |"
    assert rule.count("|") == head.count("|")


def test_the_recall_sum_of_localization_is_that_of_its_recalls():
    # 25 + 50 + 75.
    assert cards.recall_sum(LOCALIZED) == 150
    assert cards.recall_sum({"recall_sum": 300.5}) == 300.5


@pytest.mark.parametrize(
    ("test", "takes", "used"),
    [
        (TEST, "photos", 'images, texts = ["one.jpg", "two.png"]'),
        (LOCALIZED, "photos with boxes", "tools/localize.py --model=tiny"),
        (LOCALIZED, "features of regions", 'similarity(["a red ball"], feat'),
    ],
)
def test_the_card_says_how_a_model_is_used(test, takes, used):
    metrics = METRICS | {"test": test, "takes": takes}
    card = cards.render_card("tiny", CARD.strip(), metrics)
    assert used in card and "recall sum of\n100.0" in card
    assert f"Takes {takes}" in " ".join(card.split())


def test_each_kind_of_model_has_a_table_of_its_own(tmp_path):
    for name, test in (("finder", LOCALIZED), ("tiny", TEST)):
        (tmp_path / name).mkdir()
        report = json.dumps(METRICS | {"test": test})
        (tmp_path / name / "metrics.json").write_text(report)
        (tmp_path / name / "README.md").write_text(CARD)
    images, _, regions = cards.render_table(tmp_path).partition("\n## Phrases")
    assert "[tiny](tiny/README.md)" in images and "finder" not in images
    assert "[finder](finder/README.md) | 25.0 |" in regions
    assert "| Words for numbers. |" in regions
    rows = [line for line in regions.splitlines() if line.startswith("|")]
    assert len(rows) == 3 and len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("# a\n\nb\n", "", CARD.replace("# tiny", ""), "# a\n\n## Not for\n"),
        "# tiny\n\nTells.\n\udcff\n",
    ],
)
def test_a_card_without_its_parts_or_text_is_refused(tmp_path, text):
    path = tmp_path / "card.md"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="card.md"):
        cards.own_text(path)


def test_places_of_flags_are_no_machines():
    lines = [
        "--data_root=/home/me/data",
        "--run_dir=/home/me/runs/x",
        "--scenes=/tmp/scenes20k",
        "--image_features=/a/b/{split}_ims.npy,features/own",
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]
    assert cards.portable_flags(lines, "tiny")[1:] == [
        "--run_dir=runs/tiny",
        "--scenes=runs/scenes20k",
        "--image_features=data/{split}_ims.npy,features/own",
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]


def test_metrics_that_were_written_are_read(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS))
    assert cards.read_report(path) == cards.read_metrics(path) == METRICS


@pytest.mark.parametrize(
    ("damaged", "named"),
    [
        ([REPORT], "results"),
        ({**METRICS, "test": None}, "test"),
        ({**METRICS, "epochs": "2"}, "epochs"),
        ({**METRICS, "versions": {"keras": "3"}}, "tensorflow"),
        ({**METRICS, "test_split": {}}, "name"),
        ({**METRICS, "test": {}}, "recall_sum"),
        (
            {**METRICS, "test": {**TEST, "text_to_image/median_rank": "1"}},
            "text_to_image/median_rank",
        ),
        (
            {**METRICS, "test": {"phrase_to_region/recall_at_1": 0.1}},
            "phrase_to_region/recall_at_5",
        ),
    ],
)
def test_damaged_metrics_are_named(tmp_path, damaged, named):
    (tmp_path / "dogs").mkdir()
    path = tmp_path / "dogs" / "metrics.json"
    path.write_text(json.dumps(damaged))
    for read in (cards.read_report, cards.read_metrics):
        with pytest.raises(InputError, match=f"{path}: .*`{named}`"):
            read(path)
    with pytest.raises(InputError, match="dogs/metrics.json"):
        cards.render_table(tmp_path)
