"""What a run is about: the contract between a task and all that runs it.

A task is made of parts, which `runs`, `training.loop` and the tools know by a
few methods each: its data (`TaskData`), its evaluators, which make
`scores.Scores` of what a network says, and its exporter. To add a task, write
these, and a `TaskSpec` that composes them, and enter it in `tasks.TASKS`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from tbnets.errors import InputError
from tbnets.tasks.fitted import check_fitted_kinds
from tbnets.tasks.parts import Builder
from tbnets.tasks.recipes.thing import make_all
from tbnets.tasks.scores import Together
from tbnets.tasks.settings.settings import Settings


class TaskData:
    """What a run reads: checked, fitted, opened split by split, batched.

    ::

        data.resume(state, splits, where)    # a run that goes on
        data.make()                          # what recipes are yet to make
        data.check(queries)                  # is all of it there?
        fitted  = data.fit()                 # words, sizes, ...
        train   = data.load("train", fitted)
        batches = data.batches(train)
        for each epoch:
            data.start_epoch(network, train, epoch)
            batches.epoch = epoch
            steps on batches.dataset, batches.num_batches of them

    Examples are whatever `load` returns; only their task looks inside, but
    for `counts`, how many of what there are: name -> int; and `samples()`,
    what layers that need the statistics of the training split measure: name
    of a layer of the network -> arrays.

    Args:
        settings: the run's settings (see `flags`).

    Attributes:
        fits: names that are always in what `fit` returns.
        extracts: which features a run extracts by itself, in words; or "".
        mining: what mines its batches, as of `EmbeddingNetwork.compile`; None
            for images and captions alone.
        held: what it holds from epoch to epoch: name -> JSON value or NumPy
            array. A checkpoint keeps it, a resumed run starts with it.
        encoders: what encodes images and texts, in a few words; "" where that
            is not told.
        usual: what a run does where its flags say nothing: (title, values),
            what that is for, in a few words, and flag -> value.
    """

    fits = ()
    extracts = ""
    encoders = ""
    usual = "", {}
    mining = None

    def __init__(self, settings: Settings):
        self.settings = settings
        self.held = {}

    def resume(self, state, splits, where):
        """Takes over what a run has fitted and holds, before data are read.

        Args:
            state: its `checkpoints.RunState`.
            splits: names of splits, which need not exist, whose data must
                fit what was fitted.
            where: the checkpoint that remembers it, for messages.

        Raises:
            ValueError: saying what differs, or is none of what `fit` returns.
        """
        check_fitted_kinds(state.fitted, where, self.fits)
        self.held = state.held

    def begin_with(self, trained, splits):
        """Takes over words and what made features, before data are read.

        Args:
            trained: the `trained.Trained` that a new run begins with.
            splits: as in `resume`.

        Raises:
            ValueError: the data of the run were made otherwise.
        """

    def missing(self):
        """Returns the `tasks.recipes.thing.Thing`s that are not there yet.

        They can all be made, as far as that can be told beforehand; in this
        order, parts before the whole.
        """
        return []

    def make(self):
        """Makes what recipes name and is not there."""
        make_all(self.missing())

    @property
    def test_split(self):
        """The split that is reported on at the end; "" where none is there."""
        return self.settings.run.test_split

    def check(self, queries=()):
        """Refuses a run that would ask for what is not there.

        Called before anything is computed or written.

        Args:
            queries: example queries that the exported model will be asked.

        Raises:
            ValueError, FileNotFoundError: a split, photos or features are
                missing, or flags contradict each other.
        """

    def fit(self):
        """Returns what the training split tells before any step.

        Returns:
            dict, name -> JSON value or NumPy array: all that the network,
            `load` and endpoints need to know of the data. Checkpoints keep
            it.
        """
        raise NotImplementedError

    def load(self, split, fitted):
        """Returns the examples of a split."""
        raise NotImplementedError

    def notes(self, fitted):
        """Returns what people should know of the data: title -> text.

        Args:
            fitted: what `fit` returned when the run began.
        """
        return {}

    def start_epoch(self, network, train, epoch):
        """Prepares an epoch (from 0): what follows may read `held`."""

    def batches(self, train):
        """Returns the batches of any one epoch, as `data.EpochBatches`."""
        raise NotImplementedError


class Evaluator:
    """Lets a network say something of a split.

    Attributes:
        best_metric: of the metrics of its scores, the one of the dev split
            that chooses the best epoch; larger is better.
    """

    best_metric = ""

    def scores(self, network, examples):
        """Returns the `Scores` of a split by a network.

        Args:
            network: what the model's `Builder` built.
            examples: what `TaskData.load` returned for the split.
        """
        raise NotImplementedError


class Exporter:
    """Turns a network into what a SavedModel can be asked, and asks it.

    Attributes:
        answers_queries: whether `answer` can be asked.
        queries: example queries for it, if people name none.
    """

    answers_queries = False
    queries = ()

    def endpoints(self, network, fitted):
        """Returns the `serving.endpoints.Endpoints` of the SavedModel.

        Args:
            network: the built network.
            fitted: what `TaskData.fit` returned when the run began.
        """
        raise NotImplementedError

    def answer(self, saved_model, queries, folder):
        """Asks an exported model example queries; returns text to print.

        Args:
            saved_model: folder of the SavedModel.
            queries: list of strings.
            folder: folder of the run, for pictures.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Task:
    """What a run is about, and the model that is trained for it.

    ::

        task.check(queries)                        # is all of it there?
        fitted   = task.data.fit()                 # words, sizes, ...
        network  = task.model.build(task.settings, fitted)
        task.compile(network, steps_per_epoch)
        for each epoch:
            steps on batches of task.data
            metrics = task.scores(network, dev).metrics()
        endpoints = task.exporter.endpoints(network, fitted)

    Args:
        settings: the run's settings (see `flags`).
        model: the `Builder` of its model.
        data: its `TaskData`.
        evaluators: tuple of `Evaluator`; the first chooses the best epoch.
        exporter: its `Exporter`.
    """

    settings: Settings
    model: Builder
    data: TaskData
    evaluators: tuple
    exporter: Exporter

    @property
    def best_metric(self):
        """The metric of the dev split that chooses the best epoch."""
        return self.evaluators[0].best_metric

    def check(self, queries=()):
        """Refuses a run that would ask for what is not there.

        Args:
            queries: example queries that the exported model will be asked.

        Raises:
            ValueError, FileNotFoundError: as of `TaskData.check`, or the task
                answers no queries.
        """
        if queries and not self.exporter.answers_queries:
            raise InputError(
                "`--example_query` must come with a task that answers queries. "
                f"Received: --example_query={queries[0]} with "
                f"--task={self.settings.run.task}. Leave it out."
            )
        self.data.check(queries)

    def compile(self, network, steps_per_epoch):
        """Compiles a network by the settings, with the mining of the data."""
        mining = self.data.mining
        self.model.compile(network, self.settings, steps_per_epoch, mining)

    def describe(self, network):
        """Returns in a few words what is trained."""
        if not self.data.encoders:
            return self.settings.run.model
        return f"{self.data.encoders} -> {network.embedding_dim}"

    def scores(self, network, examples):
        """Returns the `Scores` of all evaluators, as one."""
        found = [one.scores(network, examples) for one in self.evaluators]
        return found[0] if len(found) == 1 else Together(found)


class TaskSpec(NamedTuple):
    """How a task is made from settings: an entry of `tasks.TASKS`.

    Args:
        compose: (settings, model) -> `Task`; the model is its `Builder`.
        flag_groups: names of the groups of `tasks.settings.settings` that it
            reads.
        fixed: (flag, value) of flags that it leaves to others at one value.
    """

    compose: Callable
    flag_groups: tuple = ()
    fixed: tuple = ()
