import numpy as np

from tbnets.evaluation import retrieval, tables


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
        "  95 % interval    0-100  100-100",
        "text to image      100.0    100.0        2      2.0        3",
        "  95 % interval  100-100  100-100",
        "text to text       100.0    100.0        1      1.5        2",
        "  95 % interval  100-100  100-100",
        "mean recall 87.5, recall sum 350.0",
    ]


def test_recalls_of_few_queries_have_their_interval():
    names = {f"text_to_image/recall_at_{k}": k / 20 for k in (1, 5, 10)}
    rest = {"median_rank": 3, "mean_rank": 4, "tie_rate": 0}
    rest = {f"text_to_image/{name}": value for name, value in rest.items()}
    metrics = names | rest | {"recall_sum": 80, "mean_recall": 0.2}
    few, many = (
        tables.format_table(metrics | {"text_to_image/num_queries": count})
        for count in (100, 200)
    )
    assert "interval" not in many
    cells = few.splitlines()[2].removeprefix("  95 % interval").split()
    # About 1.96 times the root of p (1 - p) / 100 to each side.
    wanted = [(1, 10), (17, 34), (40, 60)]
    found = [tuple(map(int, cell.split("-"))) for cell in cells]
    np.testing.assert_allclose(found, wanted, atol=1)
