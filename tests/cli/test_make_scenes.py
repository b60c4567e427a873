from tests import verbs

FEW = ("--num_train=5", "--num_dev=1", "--num_test=2", "--image_size=48")


def test_scenes_are_written_once_and_reused(tmp_path):
    line = "make_scenes", f"--folder={tmp_path / 'scenes'}", *FEW
    said = verbs.printed(*line)
    assert "Wrote 5 training, 1 dev and 2 test scenes" in said
    assert f"--captions={tmp_path}/scenes/dataset.json" in said
    # The run that the quickstart left is another.
    assert "--run_dir=runs/scenes_own" in said
    assert "Found 5 training" in verbs.printed(*line)
