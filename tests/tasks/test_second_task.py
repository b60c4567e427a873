"""A second task and a second model: all they take is an entry in two dicts.

The task is to learn a factor from pairs of numbers; what it holds from epoch
to epoch shifts its examples, so that a resume without it would be noticed.
"""

import dataclasses
import types
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_making.served import served_scores

from tbnets.serving.endpoints import Endpoints
from tbnets.serving.served import load_saved_model
from tbnets.tasks import registry, runs
from tbnets.tasks.builders import ModelSpec
from tbnets.tasks.scores import Scores
from tbnets.tasks.task import Task
from tests import tiny, verbs
from tests.tiny_runs import assert_same_weights
from tests.tiny_runs import trained as train


class Pairs(NamedTuple):
    inputs: np.ndarray
    outputs: np.ndarray

    @property
    def counts(self):
        return {"numbers": len(self.inputs)}


def on_circle(numbers):
    """Returns numbers as unit vectors: alike where they are."""
    return {"embeddings": tf.concat([tf.cos(numbers), tf.sin(numbers)], 1)}


@dataclasses.dataclass
class Errors(Scores):
    errors: np.ndarray

    def metrics(self):
        return {"score": -float(np.abs(self.errors).mean())}


class FactorTask(Task):
    """Numbers are its images; a sentence says a product that is looked for."""

    best_metric = "score"
    test_split = "test"

    def notes(self, fitted):
        return {}

    def fit(self):
        sizes = {"words": [], "image_dim": 1, "text_dim": None}
        return {**sizes, "factor": 3.0, "offsets": np.arange(2.0)}

    def load(self, split, fitted):
        inputs = np.arange(1.0, 5.0)[:, None] + (split == "dev")
        outputs = inputs * fitted["factor"] + fitted["offsets"][:1]
        return Pairs(inputs, outputs)

    def start_epoch(self, network, train, epoch):
        shift = self.held.get("shift", np.zeros(1))
        self.held = {"shift": shift + network.layers[-1].bias.numpy() + 0.1}

    def batches(self, train):
        inputs, outputs = (tf.constant(one, tf.float32) for one in train)

        def epoch():
            shift = self.held["shift"].astype("float32")
            yield inputs[:2], outputs[:2] + shift
            yield inputs[2:], outputs[2:] + shift

        spec = (tf.TensorSpec((2, 1)),) * 2
        dataset = tf.data.Dataset.from_generator(epoch, output_signature=spec)
        return types.SimpleNamespace(
            dataset=dataset, epoch=0, num_batches=2, largest=None
        )

    def compile(self, network, steps_per_epoch):
        rate = self.settings.optimizer.learning_rate
        network.compile(keras.optimizers.Adam(rate), "mse")

    def scores(self, network, examples):
        found = network.predict(examples.inputs, verbose=0)
        return Errors(found - examples.outputs)

    def served_scores(self, model, split):
        inputs, outputs = self.load(split, self.fit())
        found = model.call("multiply", numbers=inputs)["products"]
        return Errors(found - outputs)

    def endpoints(self, network, fitted):
        numbers = tf.TensorSpec((None, 1), name="numbers")
        said = tf.TensorSpec((None,), tf.string, name="said")
        functions = {
            "multiply": (lambda x: {"products": network(x)}, numbers),
            "embed_image": (lambda x: on_circle(network(x) / 9), numbers),
            "embed_text": (
                lambda x: on_circle(tf.strings.to_number(x)[:, None] / 9),
                said,
            ),
        }
        return Endpoints(
            {
                name: tf.function(function, input_signature=[spec])
                for name, (function, spec) in functions.items()
            },
            "multiply",
        )


def create(settings, fitted):
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


# What follows is the test: above is the whole task.
pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    monkeypatch.setitem(registry.TASKS, "factor", FactorTask)
    groups = ("training", "optimizer")
    monkeypatch.setitem(registry.MODELS, "dense", ModelSpec(create, groups))


def settings(run_dir, *line):
    return tiny.parse(
        f"--run_dir={run_dir}",
        *("--task=factor", "--model=dense", "--learning_rate=0.1"),
        *line,
    )


def test_second_task_trains_resumes_evaluates_and_exports(tmp_path):
    straight = train(settings(tmp_path / "straight", "--epochs=2"))
    train(settings(tmp_path / "two", "--epochs=1"))
    again = train(settings(tmp_path / "two", "--epochs=2"), resume=True)
    np.testing.assert_array_equal(
        straight.task.held["shift"], again.task.held["shift"]
    )
    assert_same_weights(straight.network, again.network)

    report = runs.finish(again)
    assert report["test_split"] == {"name": "test", "numbers": 4}
    opened = runs.open_run(tmp_path / "two")
    np.testing.assert_array_equal(
        opened.state.fitted["offsets"], np.arange(2.0)
    )
    numbers = opened.task.load("test", opened.state.fitted)
    metrics = opened.task.scores(opened.network, numbers).metrics()
    assert metrics == report["test"]

    model = load_saved_model(runs.export(opened))
    found = model.call("multiply", numbers=[[2.0]])["products"]
    np.testing.assert_allclose(
        found, opened.network(np.array([[2.0]])), rtol=1e-6
    )
    served = served_scores(opened.task, model, "test").metrics()
    assert served == pytest.approx(report["test"], rel=1e-5)
    check_search(model, tmp_path / "two", tmp_path)


def check_search(model, run_dir, folder):
    """Searches with the model of a run by the query tool."""
    numbers = np.arange(5.0)[:, None]
    np.save(folder / "numbers.npy", numbers)
    (folder / "numbers_ids.txt").write_text("0\n1\n2\n3\n4\n")
    features = f"--image_features={folder / 'numbers.npy'}"
    text, _, failure = verbs.ask("query", f"--model={run_dir}", features, "6")
    assert not failure
    products = model.call("multiply", numbers=numbers)["products"][:, 0]
    order = np.argsort(-np.cos((products - 6) / 9))
    found = [line.split()[-1] for line in text.splitlines()[2:]]
    assert found == [str(number) for number in order], text
