"""Defines the interface of a task, `Task`.

To add a task, write a subclass of `Task` and a subclass of `Scores`, and add
the task to `registry.TASKS`.
"""

import numpy as np

from tbnets.errors import InputError
from tbnets.files import is_kind, shown
from tbnets.tasks.builders import compile_network
from tbnets.tasks.settings.settings import Settings

_TYPES = {
    "words": list[str],
    "longest_text": int,
    **dict.fromkeys(("image_dim", "text_dim", "region_dim"), int | None),
    "image_features_made_by": dict,
    "text_features_made_by": dict,
    "region_features_made_by": dict,
    "recipes": dict,
    "text_encoder_made_by": dict,
    "image_preset": dict,
    "left_out": dict[str, str],
    "split_cuts": list[float],
    "word_vectors": np.ndarray,
    "word_vectors_coverage": dict,
    "begun_with": dict,
}
_MORE = {
    "begun_with": lambda begun: type(begun.get("words")) is int,
    "split_cuts": lambda cuts: len(cuts) == 2,
    "word_vectors": lambda rows: rows.ndim == 2 and rows.dtype.kind == "f",
}
"""Further conditions on some fitted values, as checkpoints are untrusted."""


def check_fitted_kinds(fitted, path, required):
    """Raises ValueError if a fitted value is missing or has the wrong type.

    `required` lists the names of the required values.
    """
    for name in [name for name in _TYPES if name in {*fitted, *required}]:
        value, kind = fitted.get(name, ""), _TYPES[name]
        if not is_kind(value, kind) or not _MORE.get(name, lambda _: 1)(value):
            what = f"whose `{name}` is {shown(value)}, not {kind}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a valid checkpoint. Received: a checkpoint "
                f"{what}. Use the run's other checkpoint, best.npz or last.npz."
            )


class Task:
    """Base class of tasks, which load data, compute scores and make endpoints.

    ::

        task.resume(state, splits, where)    # a resumed run
        task.make()                          # results of recipes
        task.check(queries)                  # raises errors early
        fitted  = task.fit()                 # words, sizes, ...
        network = builders.build_network(task.settings, ...)
        train   = task.load("train", fitted)
        batches = task.batches(train)
        task.compile(network, batches.num_batches)
        for each epoch:
            task.start_epoch(network, train, epoch)
            batches.epoch = epoch
            steps on batches.dataset, batches.num_batches of them
            metrics = task.scores(network, dev).metrics()
        endpoints = task.endpoints(network, fitted)

    Other modules read only two attributes of the examples that `load` returns:
    `counts`, a dict with the numbers of examples, and `samples(name)`, the
    arrays from which the layer `name` computes statistics.

    Attributes:
        flag_groups: names of the `Settings` groups that the task reads.
        fixed: flags that the task fixes, and their values.
        best_metric: dev metric that selects the best epoch. Larger is better.
        answers_queries: whether the exported model answers example queries.
        example_queries: default queries, used if the user sets none.
        fits: names of the values that `fit` always returns.
        extracts: description of the features that the run extracts without a
            recipe, or "".
        mining: miner with which `compile` is called, or None.
        held: dict of JSON values or arrays, kept between epochs and saved in
            checkpoints.
        usual: title, and a dict of default values for unset flags.
        memory_limit_mb: memory for `scores`, in MiB.
    """

    flag_groups = ()
    fixed = {}
    best_metric = ""
    answers_queries = False
    example_queries = ()
    fits = ()
    extracts = ""
    usual = "", {}
    mining = None
    memory_limit_mb = 512

    def __init__(self, settings: Settings):
        self.settings = settings
        self.held = {}

    def resume(self, state, splits, where):
        """Restores the state of a resumed run, before any data are read.

        `state` is the `checkpoints.RunState` that was read from the path
        `where`. Raises ValueError if a fitted value is invalid, or if existing
        data of `splits` have changed.
        """
        check_fitted_kinds(state.fitted, where, self.fits)
        self.held = state.held

    def begin_with(self, trained, splits):
        """Uses a trained model's words and feature descriptions.

        Raises ValueError if the features of `splits` differ from the model's.
        """

    def missing(self):
        """Returns the missing recipe results, in the order to compute them."""
        return []

    def make(self):
        """Computes the missing results of recipes."""
        for result in self.missing():
            result.make_if_missing()

    @property
    def test_split(self):
        """The name of the test split, or "" if the data have none."""
        return self.settings.run.test_split

    def check(self, queries=()):
        """Raises an error if inputs are missing or flags contradict each other.

        The run calls this method before `fit`. `queries` are example queries
        for the exported model.
        """
        if queries and not self.answers_queries:
            raise InputError(
                "--example_query",
                "be used with a task that supports queries",
                f"--example_query={queries[0]} with "
                f"--task={self.settings.run.task}",
                "Leave it out.",
            )

    def fit(self):
        """Returns a dict of values computed from the training split.

        The network, `load` and the endpoints need these JSON values and NumPy
        arrays, which are saved in checkpoints.
        """
        raise NotImplementedError

    def load(self, split, fitted):
        """Returns the examples of a split."""
        raise NotImplementedError

    def notes(self, fitted):
        """Returns facts about the data to print, as {title: text}."""
        return {}

    def start_epoch(self, network, train, epoch):
        """Prepares the 0-based `epoch`. May change `held`."""

    def batches(self, train):
        """Returns the `EpochBatches` of the training examples."""
        raise NotImplementedError

    def compile(self, network, steps_per_epoch):
        """Compiles a network with the settings and `mining`."""
        compile_network(network, self.settings, steps_per_epoch, self.mining)

    def describe(self, network):
        """Returns a short description of the trained network."""
        return self.settings.run.model

    def scores(self, network, examples):
        """Returns the `Scores` of a network on the examples of a split."""
        raise NotImplementedError

    def endpoints(self, network, fitted):
        """Returns the `serving.endpoints.Endpoints` of the SavedModel."""
        raise NotImplementedError

    def answer(self, saved_model, queries, folder):
        """Runs example queries on an exported model and returns text to print.

        Writes pictures to `folder`, the folder of the run.
        """
        raise NotImplementedError
