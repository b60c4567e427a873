import numpy as np

from tbnets.evaluation import tables


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
