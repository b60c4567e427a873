"""Tests of a `metrics.json` that is not as it was written."""

import json

import pytest
from zoo_making import cards
from zoo_making.measures import read_metrics, read_report

from tbnets.evaluation import tables

TEST = {"recall_sum": 100.0} | {
    f"{direction}/{name}": 0.5
    for direction in tables.DIRECTIONS[:2]
    for name in ("recall_at_1", "recall_at_10", "median_rank")
}
REPORT = {
    "best_epoch": 1,
    "epochs": 2,
    "train_seconds": 3,
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


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_what_was_written_is_read(tmp_path):
    assert read_report(write(tmp_path / "a", REPORT)) == REPORT
    assert read_metrics(write(tmp_path / "b", METRICS)) == METRICS
    assert "| x |" in cards.render_card("x", "# x", METRICS)


@pytest.mark.parametrize(
    "damaged, named",
    [
        ("", "empty file"),
        ('{"epochs": 1', "looks truncated"),
        ([REPORT], "expected results of type dict"),
        ({**METRICS, "test": None}, "expected `test` of type dict"),
        ({**METRICS, "epochs": "2"}, "expected `epochs` of type int"),
        ({**METRICS, "versions": {"keras": "3"}}, "`tensorflow` in `versi"),
        ({**METRICS, "test_split": {}}, "expected `name` in `test_split`"),
        ({**METRICS, "test": {}}, "expected `recall_sum` in `test`"),
        (
            {**METRICS, "test": {**TEST, "text_to_image/median_rank": "1"}},
            "expected `text_to_image/median_rank` in `test` of type float",
        ),
        (
            {**METRICS, "test": {"phrase_to_region/recall_at_1": 0.1}},
            "expected `phrase_to_region/recall_at_5` in `test`",
        ),
    ],
)
@pytest.mark.parametrize("read", [read_report, read_metrics])
def test_a_damaged_file_is_named_with_what_is_wrong(
    tmp_path, read, damaged, named
):
    path = write(tmp_path / "metrics.json", damaged)
    with pytest.raises(ValueError) as caught:
        read(path)
    assert str(path) in str(caught.value) and named in str(caught.value)


def test_the_zoos_table_names_the_model_whose_metrics_are_damaged(tmp_path):
    (tmp_path / "dogs").mkdir()
    write(tmp_path / "dogs" / "metrics.json", "{")
    with pytest.raises(ValueError, match="dogs/metrics.json"):
        cards.render_table(tmp_path)
