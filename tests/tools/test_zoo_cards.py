"""Cards, tables and `metrics.json` of models of the zoo."""

import json

import pytest
from zoo_making import cards

from tbnets.errors import InputError
from tbnets.evaluation import tables
from tbnets.serving import zoo
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
RANK, BEST = "text_to_image/median_rank", "phrase_to_region/recall_at_1"
METRICS = REPORT | {
    "takes": "photos",
    "embedding_dim": 4,
    "run_recall_sum": 100.0,
    "date": "2026-01-02",
    "command": "python tools/train.py",
}


def test_the_recall_sum_of_localization_is_that_of_its_recalls():
    # 25 + 50 + 75.
    recalls = zip((1, 5, 10), (0.25, 0.5, 0.75))
    names = {f"phrase_to_region/recall_at_{k}": x for k, x in recalls}
    assert cards.recall_sum(names) == 150
    assert cards.recall_sum({"recall_sum": 300.5}) == 300.5


@pytest.mark.parametrize("name", zoo.names())
def test_zoo_cards_are_generated_from_their_metrics(name):
    folder = zoo.folder() / name
    text = cards.own_text(folder / "README.md")
    metrics = cards.read_metrics(folder / "metrics.json")
    card = cards.render_card(name, text, metrics)
    assert card == (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        *("# a\n\nb\n", "", CARD.replace("# tiny", ""), "# a\n\n## Not for\n"),
        "# tiny\n\nTells.\n\udcff\n",
    ],
)
def test_card_without_its_text_raises_an_error(tmp_path, text):
    path = tmp_path / "card.md"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="card.md"):
        cards.own_text(path)


def test_flag_file_paths_are_relative():
    portable = [
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]
    lines = [
        "--data_root=/home/me/data",
        "--run_dir=/home/me/runs/x",
        "--scenes=/tmp/scenes20k",
        "--image_features=/a/b/{split}_ims.npy,features/own",
    ]
    assert cards.portable_flags([*lines, *portable], "tiny")[1:] == [
        "--run_dir=runs/tiny",
        "--scenes=runs/scenes20k",
        "--image_features=data/{split}_ims.npy,features/own",
        *portable,
    ]


def test_metrics_that_were_written_are_read(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS))
    assert cards.read_metrics(path, cards.OF_RUN) == METRICS
    assert cards.read_metrics(path) == METRICS


@pytest.mark.parametrize(
    ("damaged", "named"),
    [
        ([REPORT], "results"),
        ({**METRICS, "test": None}, "test"),
        ({**METRICS, "epochs": "2"}, "epochs"),
        ({**METRICS, "versions": {"keras": "3"}}, "tensorflow"),
        ({**METRICS, "test_split": {}}, "name"),
        ({**METRICS, "test": {}}, "recall_sum"),
        ({**METRICS, "test": {**TEST, RANK: "1"}}, RANK),
        ({**METRICS, "test": {BEST: 0.1}}, BEST[:-1] + "5"),
    ],
)
def test_damaged_metrics_are_named(tmp_path, damaged, named):
    (tmp_path / "dogs").mkdir()
    path = tmp_path / "dogs" / "metrics.json"
    path.write_text(json.dumps(damaged))
    for kinds in (cards.OF_RUN, cards.OF_MODEL):
        with pytest.raises(InputError, match=f"{path}: .*`{named}`"):
            cards.read_metrics(path, kinds)
    with pytest.raises(InputError, match="dogs/metrics.json"):
        cards.render_table(tmp_path)
