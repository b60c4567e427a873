"""Cards, tables and `metrics.json` of models of the zoo."""

import json

import pytest
from zoo_making import cards

from tbnets.serving import zoo


def test_recall_sum_of_localization_adds_its_recalls():
    # 25 + 50 + 75.
    recalls = zip((1, 5, 10), (0.25, 0.5, 0.75))
    names = {f"phrase_to_region/recall_at_{k}": x for k, x in recalls}
    assert cards.recall_sum(names) == 150
    assert cards.recall_sum({"recall_sum": 300.5}) == 300.5


@pytest.mark.parametrize("name", zoo.names())
def test_zoo_cards_are_generated_from_their_metrics(name):
    folder = zoo.folder() / name
    text = cards.own_text(folder / "README.md")
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    card = cards.render_card(name, text, metrics)
    assert card == (folder / "README.md").read_text("utf-8")


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
