"""What a run refuses before it writes anything: flags and files."""

import pytest

from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import TREES, prepared


@pytest.mark.parametrize(
    "line",
    [
        "--rnn_units=5 --text_encoder=mean",
        "--image_size=96",
        "--nofine_tune --image_features=x.npy",
        "--fine_tune --image_encoder=small",
        "--captions=c.json --scenes=s",
        "--num_scenes=1,1,1",
        "--num_negatives=5 --negatives=all",
        "--weight_decay=0.1",
        "--margin=0.2 --loss=infonce",
        "--temperature=0.2",
        "--word_vectors=w.txt --from=scenes_embedding --run_dir=x",
        "--images_per_batch=5 --task=localization",
        "--margin=1 --model=cca",
        "--loss=wang2018 --model=similarity",
        "--num_candidates=3 --model=similarity --pair_loss=softmax",
        "--epochs=5 --model=cca",
        "--image_encoder=small --task=localization",
    ],
)
def test_unused_flags_on_the_command_line_raise_errors(line):
    first, *_ = line.split()
    name = first.partition("=")[0].replace("--no", "--")
    with refused(name):
        tiny.unread(*line.split())


BAD = {
    ("matching", "embedding"): [
        ({"trees": ""}, "--trees"),
        ({"trees": "few.jsonl"}, "--trees"),
        ({"jit_compile": True}, "--jit_compile"),
    ],
    ("matching", "cca"): [
        ({"text_encoder": "mean"}, "text_encoder"),
        ({"cca_dim": 7}, "output_dim"),
    ],
    ("matching", "hm_lstm"): [
        ({"regions": ""}, "--regions"),
        ({"jit_compile": True}, "--jit_compile"),
        ({"region_mean_weight": 0}, "--region_mean_weight"),
        ({"region_branch": "shared"}, "--region_branch"),
        ({"task": "localization"}, "--task"),
    ],
    ("localization", "embedding"): [
        ({"phrases": ""}, "--phrases"),
        ({"phrases": "none"}, "--phrases"),
        ({"dev_split": "x"}, "--dev_split"),
        ({"images": "none"}, "--images"),
        ({"cnn_weights": "random", "export": True}, "--cnn_weights"),
        # A network that learned nothing finds no hard negatives.
        ({"epochs": 2}, "--hard_negative_epochs"),
    ],
}


@pytest.mark.parametrize(
    "kind, changes, name",
    [(kind, *row) for kind, rows in BAD.items() for row in rows],
)
def test_wrong_settings_raise_errors_before_any_work(
    tiny_run, tmp_path, kind, changes, name
):
    trees = (tiny_run.captioned / "trees.jsonl").read_text()
    first, *_ = trees.splitlines()
    (tiny_run.captioned / "few.jsonl").write_text(first + "\n")
    if kind == ("matching", "embedding"):
        changes = TREES | changes
    with refused(name):
        prepared(tiny_run.settings(tmp_path / "run", *kind, **changes))
    assert not (tmp_path / "run").exists()
