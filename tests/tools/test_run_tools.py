"""A run from the command line: train, evaluate, export, query.

One tiny run is trained for all tests; each tool reads what it left.
"""

import functools
import importlib.util
import json
import os
import signal
import time

import keras
import numpy as np
import PIL.Image
import pytest

from tbnets.serving import saved_files
from tbnets.training import checkpoints
from tests import fresh, tiny, verbs

# No graph is tested, except exported graphs.
pytestmark = pytest.mark.usefixtures("module_eagerly")


def tool(name, *arguments):
    """Calls a verb, which must succeed; returns what it printed."""
    call = (
        verbs.train if name == "train" else functools.partial(verbs.run, name)
    )
    ended = call(*arguments)
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


@pytest.mark.parametrize("split", ["dev", "test"])
def test_evaluation_of_a_run_repeats_its_own_report(
    run_dir, evaluated, split, tmp_path
):
    metrics, _ = evaluated
    if split == "dev":
        metrics = measured(run_dir, "dev", tmp_path / "metrics.json")
    reported = metrics_of(run_dir)[split]
    assert metrics.keys() == reported.keys()
    for name, value in reported.items():
        assert metrics[name] == pytest.approx(value), name


def test_saved_embeddings_have_the_same_metrics(evaluated, tmp_path):
    metrics, folder = evaluated
    names = ("image_embeddings", "text_embeddings", "caption_to_image")
    assert {path.stem for path in folder.iterdir()} == set(names)
    files = [f"--{name}={folder / name}.npy" for name in names]
    tool("evaluate", *files, f"--json={tmp_path / 'again.json'}")
    assert json.loads((tmp_path / "again.json").read_text()) == metrics


def test_a_map_is_drawn_of_the_split(evaluated):
    pytest.importorskip("sklearn", reason="needs the extra: tbnets[map]")
    _, folder = evaluated
    with PIL.Image.open(folder.parent / "map.png") as drawn:
        assert drawn.size == (1400, 1044)
        colours = {colour for _, colour in drawn.getcolors(1 << 16)}
    # Three images without photos, and dots of their captions.
    assert {(221, 221, 221), (0, 114, 178)} <= colours


def answers(text):
    """Returns (similarity, answer) of each line of an answer's table."""
    lines = [line.split(None, 2) for line in text.splitlines()[2:]]
    return [(float(similarity), answer) for _, similarity, answer in lines]


def query(saved_model, data, caption):
    features = f"--image_features={data / 'test_ims.npy'}"
    line = f"--model={saved_model}", features, "--top=6", caption
    return answers(tool("query", *line))


def assert_ranks_as_embedded(saved_model, data, row, embeddings):
    """A caption's answers are the images by falling similarity."""
    caption = (data / "test_caps.txt").read_text().splitlines()[row]
    ids = (data / "test_ids.txt").read_text().split()
    images = np.load(embeddings / "image_embeddings.npy")
    texts = np.load(embeddings / "text_embeddings.npy")
    wanted = dict(zip(ids, images @ texts[row]))
    found = query(saved_model, data, caption)
    assert {name for _, name in found} == set(ids)
    for similarity, name in found:
        # Printed with three digits.
        assert similarity == pytest.approx(wanted[name], abs=6e-4)
    order = [wanted[name] for _, name in found]
    np.testing.assert_allclose(order, sorted(order)[::-1], atol=1e-6)


def test_query_of_the_exported_run_ranks_as_its_evaluation(
    data, run_dir, evaluated
):
    _, folder = evaluated
    best = run_dir / "saved_model" / "1"
    assert_ranks_as_embedded(best, data, 3, folder)


@pytest.fixture(scope="module")
def last_epoch(run_dir):
    """The SavedModel of the run's last epoch."""
    text = tool("export", f"--run_dir={run_dir}", "--checkpoint=last")
    saved_model = run_dir / "saved_model" / "2"
    assert text == f"SavedModel  {saved_model}\n"
    return saved_model


def test_another_checkpoint_is_exported_as_it_is_evaluated(
    data, run_dir, last_epoch, tmp_path
):
    line = f"--run_dir={run_dir}", "--checkpoint=last"
    tool("evaluate", *line, f"--save_embeddings={tmp_path}")
    assert_ranks_as_embedded(last_epoch, data, 0, tmp_path)


def test_export_tells_the_epoch_of_its_checkpoint(run_dir, last_epoch):
    best = run_dir / "saved_model" / "1"
    epochs = (metrics_of(run_dir)["best_epoch"], 4)
    for saved_model, epoch in zip((best, last_epoch), epochs):
        text = (saved_model / saved_files.METADATA_FILE).read_text()
        assert json.loads(text)["metadata"]["epoch"] == epoch


def test_a_finished_run_is_not_trained_or_exported_again(run_dir, last_epoch):
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    text = tool("train", "--resume", f"--run_dir={run_dir}")
    assert text.startswith(f"{run_dir} is finished after epoch 4")
    assert text.count("\n") == 1
    after = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    assert before == after


def test_query_asks_the_newest_version_of_a_run(data, run_dir, last_epoch):
    newest = query(run_dir, data, "a red dog")
    assert newest == query(last_epoch, data, "a red dog")


def test_ctrl_c_says_how_to_go_on(data, tmp_path):
    run_dir = tmp_path / "run"
    process = fresh.start(
        "tools/train.py",
        *flags(data, run_dir, epochs=500, seed=3),
        eagerly=True,
        outputs=(str(tmp_path / "out"), str(tmp_path / "err")),
    )
    while not (run_dir / "checkpoints" / "last.npz").exists():
        assert process.is_alive(), (tmp_path / "err").read_text()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    text = (tmp_path / "err").read_text()
    command = f"python tools/train.py --resume --run_dir={run_dir}"
    assert text.endswith(f"Continue with: {command}\n")
    assert "Traceback" not in text
    # The run goes on with its own flags; --epochs is free to change.
    last = run_dir / "checkpoints" / "last.npz"
    epoch = checkpoints.read_checkpoint(last)[2].epoch
    more = f"--epochs={epoch + 1}"
    line = "--resume", f"--run_dir={run_dir}", more
    text = tool("train", *line)
    assert f"continued after epoch {epoch}" in text
    kept = json.loads((run_dir / "settings.json").read_text())
    assert (kept["seed"], kept["epochs"]) == (3, epoch + 1)


@pytest.fixture
def float32_again():
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.usefixtures("float32_again")
def test_bfloat16_trains_resumes_and_evaluates(data, tmp_path):
    path, precision = tmp_path / "metrics.json", "--precision=mixed_bfloat16"
    tool("train", *flags(data, tmp_path / "run", epochs=1), precision)
    line = flags(data, tmp_path / "run", epochs=2)
    text = tool("train", *line, precision, "--resume")
    assert "continued after epoch 1" in text
    tool("evaluate", f"--run_dir={tmp_path / 'run'}", f"--json={path}")
    assert metrics_of(tmp_path / "run")["epochs"] == 2
    reported = metrics_of(tmp_path / "run")["test"]
    for name, value in json.loads(path.read_text()).items():
        assert value == pytest.approx(reported[name]), name
