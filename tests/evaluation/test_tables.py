import numpy as np

from tbnets.evaluation import retrieval
from tbnets.evaluation import tables


def metrics_of(*arguments, **options):
    return retrieval.evaluate_retrieval(*arguments, **options)


def test_table_shows_per_cent():
    images = np.array([[1, 0], [0, 1]])
    texts = np.array([[0.6, 0.8], [0.8, 0.6], [0, 1]])
    metrics = metrics_of(images, texts, [0, 1, 0], recall_at=(10, 2))
    # Ranks: images 2, 3; captions 2, 2, 2; captions to captions 2, 1.
    assert tables.format_table(metrics, "tiny").splitlines() == [
        "tiny",
        "                     R@2     R@10     MedR    MeanR  queries",
        "image to text       50.0    100.0        2      2.5        2",
        "text to image      100.0    100.0        2      2.0        3",
        "text to text       100.0    100.0        1      1.5        2",
        "mean recall 87.5, recall sum 350.0",
    ]


def test_table_names_ties_and_skips_what_was_not_measured():
    metrics = metrics_of(np.ones((2, 1)), np.ones((2, 1)), [0, 1])
    lines = tables.format_table(metrics).splitlines()
    assert lines[0].split() == "R@1 R@5 R@10 MedR MeanR queries".split()
    assert lines[2].strip() == ("100.0% of these tie with a wrong one (a miss)")
    assert not any("text to text" in line for line in lines)


def test_markdown_row_fits_its_header():
    metrics = metrics_of(np.eye(12), np.eye(12), range(12))
    row = tables.markdown_row(metrics, "a|b")
    assert row == (
        "| a\\|b | 100.0 | 100.0 | 100.0 | 1 | 100.0 | 100.0 | 100.0 | 1 "
        "| 600.0 |"
    )
    header, rule = tables.markdown_header().splitlines()
    assert header.count("|") == rule.count("|") == row.count("|") - 1
    assert header == (
        "| model | image to text R@1 | R@5 | R@10 | MedR "
        "| text to image R@1 | R@5 | R@10 | MedR | recall sum |"
    )
