"""A run from the command line: train, evaluate, export, query.

One tiny run is trained for all tests; each tool reads what it left.
"""

import importlib.util
import json
import os
import shutil
import signal
import time

import keras
import numpy as np
import pytest

from tbnets.training import checkpoints
from tests import fresh, tiny, verbs

# No graph is tested, except exported graphs.
pytestmark = pytest.mark.usefixtures("module_eagerly")


def tool(name, *arguments):
    """Calls a verb, which must succeed; returns what it printed."""
    is_train = name == "train"
    ended = verbs.train(*arguments) if is_train else verbs.run(name, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def flags(folder, run_dir, **changes):
    line = tiny.arguments(folder, run_dir, **changes).items()
    return [f"--{name}={value}" for name, value in line]


def metrics_of(run_dir):
    return json.loads((run_dir / "metrics.json").read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run_dir(data, tmp_path_factory):
    """A finished and exported run whose best epoch is not its last."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    # At so high a rate the dev split's best comes long before the end.
    line = flags(data, run_dir, epochs=4, learning_rate=0.3, export=True)
    text = tool("train", *line)
    assert f"SavedModel       {run_dir / 'saved_model' / '1'}" in text
    report = metrics_of(run_dir)
    assert report["best_epoch"] < report["epochs"] == 4
    return run_dir


def measured(run_dir, split, path, *more):
    """Evaluates a split of the run; returns the metrics in the JSON file."""
    line = f"--run_dir={run_dir}", f"--split={split}", f"--json={path}"
    text = tool("evaluate", *line, *more)
    assert text.startswith(f"{run_dir}, {split}, protocol: full\n")
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def evaluated(run_dir, tmp_path_factory):
    """(metrics of the test split, folder of its embeddings)."""
    folder = tmp_path_factory.mktemp("test")
    more = [f"--save_embeddings={folder / 'embeddings'}"]
    if importlib.util.find_spec("sklearn"):
        more += [f"--map={folder / 'map.png'}", "--map_images=3"]
    metrics = measured(run_dir, "test", folder / "metrics.json", *more)
    return metrics, folder / "embeddings"


def test_evaluate_repeats_the_metrics_of_the_run(run_dir, evaluated, tmp_path):
    metrics = {"test": evaluated[0]}
    metrics["dev"] = measured(run_dir, "dev", tmp_path / "metrics.json")
    for split, values in metrics.items():
        assert values == pytest.approx(metrics_of(run_dir)[split])


def test_saved_embeddings_have_the_same_metrics(evaluated, tmp_path):
    metrics, folder = evaluated
    names = ("image_embeddings", "text_embeddings", "caption_to_image")
    assert {path.stem for path in folder.iterdir()} == set(names)
    files = [f"--{name}={folder / name}.npy" for name in names]
    tool("evaluate", *files, f"--json={tmp_path / 'again.json'}")
    assert json.loads((tmp_path / "again.json").read_text()) == metrics


def test_two_runs_are_compared_on_the_same_queries(
    run_dir, evaluated, tmp_path
):
    other, path = tmp_path / "other", tmp_path / "metrics.json"
    shutil.copytree(run_dir, other)  # A run whose best epoch is the last one.
    last = other / "checkpoints" / "last.npz"
    last.replace(last.with_name("best.npz"))
    text = tool("evaluate", f"--run_dir={run_dir},{other}", f"--json={path}")
    assert f"{other} minus {run_dir}, test" in text
    report = json.loads(path.read_text())
    first, second = report["metrics"].values()
    assert first == evaluated[0]
    for name, (difference, low, high) in report["differences"].items():
        assert difference == pytest.approx(second[name] - first[name])
        assert low <= difference <= high
    assert len(report["differences"]) == 7


def assert_ranks_as_embedded(model, data, row, embeddings):
    """A caption's answers are the images by falling similarity."""
    caption = (data / "test_caps.txt").read_text().splitlines()[row]
    ids = (data / "test_ids.txt").read_text().split()
    images = np.load(embeddings / "image_embeddings.npy")
    texts = np.load(embeddings / "text_embeddings.npy")
    wanted = dict(zip(ids, images @ texts[row]))
    features = f"--image_features={data / 'test_ims.npy'}"
    text = tool("query", f"--model={model}", features, "--top=6", caption)
    found = [line.split(None, 2)[1:] for line in text.splitlines()[2:]]
    assert {name for _, name in found} == set(ids)
    for similarity, name in found:
        # Printed with three digits.
        assert float(similarity) == pytest.approx(wanted[name], abs=6e-4)
    order = [wanted[name] for _, name in found]
    np.testing.assert_allclose(order, sorted(order)[::-1], atol=1e-6)


def test_query_ranks_like_the_evaluation(data, run_dir, evaluated):
    best = run_dir / "saved_model" / "1"
    assert_ranks_as_embedded(best, data, 3, evaluated[1])


def test_another_checkpoint_is_exported_and_is_the_newest_version(
    data, run_dir, tmp_path
):
    line = f"--run_dir={run_dir}", "--checkpoint=last"
    text = tool("export", *line)
    assert text == f"SavedModel  {run_dir / 'saved_model' / '2'}\n"
    tool("evaluate", *line, f"--save_embeddings={tmp_path}")
    assert_ranks_as_embedded(run_dir, data, 0, tmp_path)


def test_a_finished_run_is_not_trained_or_exported_again(run_dir):
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    text = tool("train", "--resume", f"--run_dir={run_dir}")
    assert text.startswith(f"{run_dir} is finished after epoch 4")
    assert text.count("\n") == 1
    after = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    assert before == after


@pytest.fixture
def float32_again():
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.usefixtures("float32_again")
def test_bfloat16_run_resumes_after_ctrl_c(data, tmp_path):
    run_dir, errors = tmp_path / "run", tmp_path / "err"
    changes = {"epochs": 500, "seed": 3, "precision": "mixed_bfloat16"}
    process = fresh.start(
        "tools/train.py",
        *flags(data, run_dir, **changes),
        eagerly=True,
        outputs=(str(tmp_path / "out"), str(errors)),
    )
    last = run_dir / "checkpoints" / "last.npz"
    while not last.exists():
        assert process.is_alive(), errors.read_text()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    command = f"tbnets train --resume --run_dir={run_dir}"
    assert errors.read_text().endswith(f"Continue with: {command}\n")
    assert "Traceback" not in errors.read_text()
    # The run goes on with its own flags; --epochs is free to change.
    epoch = checkpoints.read_checkpoint(last)[2].epoch
    line = "--resume", f"--run_dir={run_dir}", f"--epochs={epoch + 1}"
    assert f"continued after epoch {epoch}" in tool("train", *line)
    kept = json.loads((run_dir / "settings.json").read_text())
    changes["epochs"] = epoch + 1
    assert {name: kept[name] for name in changes} == changes
    report = metrics_of(run_dir)
    assert report["epochs"] == epoch + 1
    found = measured(run_dir, "test", tmp_path / "metrics.json")
    assert found == pytest.approx(report["test"])
