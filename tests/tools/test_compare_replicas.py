"""The tool that compares trainings, of which none is run here."""

import json

import compare_replicas
import numpy as np

from tests import verbs


def test_replicas_are_compared_with_one_device(monkeypatch):
    lines = []

    def run(options, words, file, folder, environments):
        lines.append((words, environments))
        losses = np.array([2.0, 4.0])
        weights = np.array([3.0, 4.0])
        if words:
            losses, weights = losses + [0, 0.4], weights + [0, 0.5]
        return {"losses": losses, "weights": weights, "times": np.ones(3)}

    monkeypatch.setattr(compare_replicas, "run", run)
    line = "--replicas=2,3", "--workers=0,4", "--other_kernels"
    ended = verbs.run("compare_replicas", *line)
    first, other, two, three, four = ended.stdout.splitlines()
    assert first.startswith("one device ") and "loss" not in first
    assert "other kernels" in other and "loss 0.0e+00" in other
    # A step's loss is off by a tenth, weights of length 5 by a half.
    assert two.endswith("loss 1.0e-01   weights 1.0e-01")
    assert three.startswith("3 replicas") and four.startswith("4 workers")
    assert [words for words, _ in lines] == [
        "",
        "",
        "--distribute=mirrored --num_replicas=2",
        "--distribute=mirrored --num_replicas=3",
        "--distribute=multi_worker",
    ]
    assert "TF_ENABLE_ONEDNN_OPTS" in lines[1][1][0]
    configs = [json.loads(each["TF_CONFIG"]) for each in lines[4][1]]
    assert [each["task"]["index"] for each in configs] == [0, 1, 2, 3]
    assert len(set(configs[0]["cluster"]["worker"])) == 4
