"""Tests of the rows of a table of models."""

import numpy as np
from zoo_making import rows

from tbnets.evaluation.retrieval import evaluate_retrieval


def test_markdown_row_fits_its_header():
    metrics = evaluate_retrieval(np.eye(12), np.eye(12), range(12))
    line = rows.row(metrics, "a|b")
    assert line == (
        "| a\\|b | 100.0 | 100.0 | 100.0 | 1 | 100.0 | 100.0 | 100.0 | 1 "
        "| 600.0 |"
    )
    header, rule = rows.header(metrics).splitlines()
    assert header.count("|") == rule.count("|") == line.count("|") - 1
    assert header == (
        "| model | image to text R@1 | R@5 | R@10 | MedR "
        "| text to image R@1 | R@5 | R@10 | MedR | recall sum |"
    )


def test_a_row_of_localization_has_the_cells_of_its_header():
    metrics = {
        "phrase_to_region/recall_at_1": 0.5,
        "phrase_to_region/recall_at_5": 0.625,
        "phrase_to_region/recall_at_10": 0.75,
        "phrase_to_region/upper_bound": 1.0,
        "phrase_to_region/mean_average_precision": 0.25,
        "phrase_to_region/num_queries": 12.0,
    }
    line = rows.row(metrics, "a|b")
    assert line == "| a\\|b | 50.0 | 62.5 | 75.0 | 100.0 | 25.0 | 12 |"
    head, rule = rows.header(metrics).split("\n")
    assert head == "| model | R@1 | R@5 | R@10 | bound | mAP | phrases |"
    assert rule.count("|") == head.count("|") == line.count("|") - 1


def test_metrics_that_nobody_knows_are_shown_as_they_are():
    metrics = {"score": -0.25, "count": 12.0}
    assert rows.header(metrics).splitlines() == [
        "| model | score | count |",
        "|---|---:|---:|",
    ]
    assert rows.row(metrics, "a") == "| a | -0.25 | 12 |"
