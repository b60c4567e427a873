"""What a run is about: the contract between a task and all that runs it.

A task is made of parts, which `runs`, `training.loop` and the tools know by a
few methods each: its data (`TaskData`), its evaluators, which make
`scores.Scores` of what a network says, and its exporter. To add a task, write
these, and a `TaskSpec` that composes them, and enter it in `tasks.TASKS`.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.files import is_kind, shown, write_text
from tbnets.tasks.parts import Builder
from tbnets.tasks.recipes.recipe import make_all
from tbnets.tasks.settings.settings import Settings
from tbnets.text.vocabulary import Vocabulary
from tbnets.visualization.plots import joined

# What a checkpoint says a task has fitted, which may be a stranger's words.

SIDES = ("words", "image_dim", "text_dim")
"""What is fitted of images and texts; [] or None where there is none."""
_KINDS = {
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
    "begun_with": lambda told: type(told.get("words")) is int,
    "split_cuts": lambda cuts: len(cuts) == 2,
    "word_vectors": lambda rows: rows.ndim == 2 and rows.dtype.kind == "f",
}
"""What must hold of some beside their kind."""


def write_fitted(fitted, folder):
    """Writes of what `TaskData.fit` returned what people read in a run."""
    if fitted.get("words"):
        Vocabulary(fitted["words"]).save(folder / "vocabulary.txt")
    if left_out := fitted.get("left_out"):
        lines = (f"{name}\t{why}\n" for name, why in left_out.items())
        write_text(folder / "left_out.txt", "".join(lines))


def check_same_words(fitted, before, path):
    """Refuses training data that give another vocabulary on resume.

    Args:
        fitted: what `TaskData.fit` returned now.
        before: what it returned when the run began.
        path: the checkpoint that remembers this.

    Raises:
        ValueError: the words differ.
    """
    now, then = fitted.get("words"), before.get("words")
    if now != then:
        raise InputError(
            "--captions",
            "give the vocabulary the run was started with",
            f"{len(now or [])} words, {path} has {len(then or [])}",
            "Restore the training captions, or start a new --run_dir.",
        )


def check_fitted_kinds(fitted, path, wanted):
    """Refuses what was fitted where it is of another kind than it must be.

    Args:
        fitted: name -> value, of a checkpoint.
        path: of the checkpoint.
        wanted: names that must be there, see `TaskData.fits`.

    Raises:
        ValueError: naming the first that is.
    """
    for name in [name for name in _KINDS if name in {*fitted, *wanted}]:
        found, kind = fitted.get(name, ""), _KINDS[name]
        if not is_kind(found, kind) or not _MORE.get(name, lambda _: 1)(found):
            what = f"whose `{name}` is {shown(found)}, no {kind}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a checkpoint of tbnets. Received: one {what}. "
                "Use the run's other checkpoint, best.npz or last.npz."
            )


# What a network says of a split: measured, shown, added to another's.

FEW_POINTS = (250, 3)
"""Images, and captions of each, with which the projector stays fluent."""
_SAME = ("image_ids", "captions", "caption_to_image")


class Scores:
    """What a network says of a split; a dataclass for each kind.

    Attributes:
        what: what is scored, in a few words.
        options: names of the options of `metrics`, which tools/evaluate.py has
            flags for.
        about_pictures: what `pictures` show, in a sentence.
        sides: name -> embeddings float `[n, dim]` whose health is watched.
        arrays: name -> array, all that the split is measured by; {} where
            more than inner products of embeddings ranks.
    """

    what = "something else"
    options = ()
    about_pictures = ""
    sides = {}
    arrays = {}

    def metrics(self, **options):
        """Returns a flat dict of metrics, by NumPy alone."""
        raise NotImplementedError

    def combine(self, other, weight):
        """Returns the scores of two networks taken together.

        Args:
            other: scores of the same split by another network.
            weight: of the other, in [0, 1].

        Raises:
            ValueError: these can not be taken together.
        """
        raise self._do_not_add_up()

    def with_bank(self, bank, temperature):
        """Returns these scores, levelled by a bank of queries.

        Args:
            bank: scores of another split by the same network.
            temperature: that of `evaluation.ranking.level`.

        Raises:
            ValueError: there are no queries that a bank could be of.
        """
        raise InputError(
            "--query_bank",
            "come with runs of images and captions",
            f"scores of {self.what}",
            "Leave it out.",
        )

    def pair_scores(self, records):
        """Returns what these say of whole images and captions.

        Args:
            records: `CaptionedImages` that are to be scored.

        Returns:
            (scores, learned): an `evaluation.score_tiles.PairScores`, minus
            distances unless they are learned.

        Raises:
            ValueError: they say nothing of that, or are of others.
        """
        raise self._do_not_add_up()

    def _do_not_add_up(self):
        return InputError(
            "--combine_with",
            "come with runs whose scores add up",
            f"scores of {self.what}",
            "Leave it out.",
        )

    def pictures(self):
        """Returns pictures of what the scores mean, for TensorBoard.

        They are drawn whenever the best epoch improves: they must be few and
        show the same examples each time.

        Returns:
            dict, name -> uint8 `[height, width, 3]`.
        """
        return {}

    def points(self, most=FEW_POINTS):
        """Returns embeddings for TensorBoard's projector, or for a map.

        Args:
            most: how many images, and captions of each, at most.

        Returns:
            A `visualization.plots.Points`; None where there is no space that
            all of them share.
        """
        return None


class Together(Scores):
    """The scores of several evaluators.

    The first ones are saved, watched, and combined with another network's.

    Args:
        parts: the `Scores`.
    """

    def __init__(self, parts):
        self.parts = parts
        self.options = tuple(name for part in parts for name in part.options)
        told = (part.about_pictures for part in parts)
        self.about_pictures = " ".join(filter(None, told))
        first = parts[0]
        self.what = first.what
        self.sides, self.arrays = first.sides, first.arrays

    def combine(self, other, weight):
        """Returns the first scores combined with those of another network."""
        return self.parts[0].combine(other, weight)

    def pair_scores(self, records):
        """Returns the `pair_scores` of the first."""
        return self.parts[0].pair_scores(records)

    def metrics(self, **options):
        """Returns the metrics of all, each by the options that it has."""
        found = {}
        for part in self.parts:
            own = options.keys() & set(part.options)
            found |= part.metrics(**{name: options[name] for name in own})
        return found

    def with_bank(self, bank, temperature):
        """Returns the same, the first levelled by a bank of queries."""
        first, *others = self.parts
        return Together([first.with_bank(bank, temperature), *others])

    def pictures(self):
        """Returns the pictures of all."""
        return {k: v for part in self.parts for k, v in part.pictures().items()}

    def points(self, most=FEW_POINTS):
        """Returns the points of all, in one space."""
        return joined([part.points(most) for part in self.parts])


def spread_evenly(count, most):
    """Returns at most `most` of the rows 0 to `count - 1`, evenly spread."""
    picks = min(count, most)
    return (np.arange(picks) * count) // max(picks, 1)


def check_same_examples(records, others, names=_SAME):
    """Refuses to combine the scores of different images or captions.

    Args:
        records: `CaptionedImages` of a split by the one run.
        others: by the other run.
        names: of what must be the same.

    Raises:
        ValueError: naming the first image or caption that differs.
    """
    for name in names:
        both = (list(getattr(each, name)) for each in (records, others))
        for row, (one, other) in enumerate(itertools.zip_longest(*both)):
            if one != other:
                raise InputError(
                    "--combine_with",
                    "be a run on the same images and captions",
                    f"in split {records.split} other {name}, {shown(one)} and "
                    f"{shown(other)} in row {row}",
                    "Evaluate both on one captions file and split.",
                )


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
        """Returns the `tasks.recipes.recipe.Thing`s that are not there yet.

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
                "--example_query",
                "come with a task that answers queries",
                f"--example_query={queries[0]} with "
                f"--task={self.settings.run.task}",
                "Leave it out.",
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
