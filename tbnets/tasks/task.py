"""The interfaces of a task: data, evaluators, scores and exporter.

`runs`, `training.loop` and the commands use a task only through these classes.
To add a task, write its `TaskData`, its evaluators, which return `Scores`, its
exporter and a `TaskSpec` that composes them; then enter the `TaskSpec` in
`TASKS` of `registry.py`.
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

# Checks of the fitted values in a checkpoint, which may be untrusted.

SIDES = ("words", "image_dim", "text_dim")
"""Fitted values of texts and images; [] or None if the run has no such side."""
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
"""Further conditions on some fitted values."""


def write_fitted(fitted, folder):
    """Writes the vocabulary and the left-out images as text files of a run."""
    if fitted.get("words"):
        Vocabulary(fitted["words"]).save(folder / "vocabulary.txt")
    if left_out := fitted.get("left_out"):
        lines = (f"{name}\t{why}\n" for name, why in left_out.items())
        write_text(folder / "left_out.txt", "".join(lines))


def check_same_words(fitted, before, path):
    """Raises a ValueError if a resumed run has a different vocabulary.

    Args:
        fitted: dict that `TaskData.fit` returned now.
        before: dict that `TaskData.fit` returned when the run started.
        path: checkpoint that holds `before`.
    """
    now, then = fitted.get("words"), before.get("words")
    if now != then:
        raise InputError(
            "--captions",
            "have the vocabulary that the run was started with",
            f"{len(now or [])} words, {path} has {len(then or [])}",
            "Restore the training captions, or start a new --run_dir.",
        )


def check_fitted_kinds(fitted, path, wanted):
    """Raises a ValueError if a fitted value is missing or has a wrong type.

    Args:
        fitted: name -> value, from a checkpoint.
        path: path of the checkpoint.
        wanted: names that `fitted` must have (`TaskData.fits`).
    """
    for name in [name for name in _KINDS if name in {*fitted, *wanted}]:
        found, kind = fitted.get(name, ""), _KINDS[name]
        if not is_kind(found, kind) or not _MORE.get(name, lambda _: 1)(found):
            what = f"whose `{name}` is {shown(found)}, no {kind}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a checkpoint of tbnets. Received: a "
                f"checkpoint {what}. Use the run's other checkpoint, best.npz "
                "or last.npz."
            )


# Scores of a network on a split: measured, drawn and combined.

FEW_POINTS = (250, 3)
"""Numbers of images, and of captions per image, that keep the projector
fluent."""
_SAME = ("image_ids", "captions", "caption_to_image")


class Scores:
    """The scores of a network on a split; each kind of score is a dataclass.

    Attributes:
        what: what is scored, in a few words.
        options: names of the options of `metrics`; tools/evaluate.py has a flag
            for each.
        about_pictures: one sentence that explains `pictures`.
        sides: name -> embeddings, float `[n, dim]`, whose health is watched.
        arrays: name -> array; all arrays that the metrics need. {} where the
            ranking needs more than inner products of embeddings.
    """

    what = "something else"
    options = ()
    about_pictures = ""
    sides = {}
    arrays = {}

    def metrics(self, **options):
        """Returns a flat dict of metrics, computed only with NumPy."""
        raise NotImplementedError

    def combine(self, other, weight):
        """Returns the combined scores of two networks.

        Args:
            other: scores of a second network on this split.
            weight: weight of `other`, in [0, 1].

        Raises:
            ValueError: these kinds of scores cannot be combined.
        """
        raise self._do_not_add_up()

    def with_bank(self, bank, temperature):
        """Returns these scores, levelled by a bank of queries.

        Args:
            bank: scores of this network on a second split.
            temperature: temperature of `evaluation.ranking.level`.

        Raises:
            ValueError: this kind of scores has no queries for a bank.
        """
        raise InputError(
            "--query_bank",
            "be used with runs of images and captions",
            f"scores of {self.what}",
            "Leave it out.",
        )

    def pair_scores(self, records):
        """Returns a score for every pair of a whole image and a caption.

        Args:
            records: `CaptionedImages` to score.

        Returns:
            (scores, learned): an `evaluation.score_tiles.PairScores`, and
            whether the network learns its scores; scores that are not learned
            are negative distances.

        Raises:
            ValueError: there are no scores of whole images and captions, or
                `records` are not the scored examples.
        """
        raise self._do_not_add_up()

    def _do_not_add_up(self):
        return InputError(
            "--combine_with",
            "be used with runs whose scores can be added",
            f"scores of {self.what}",
            "Leave it out.",
        )

    def pictures(self):
        """Returns pictures that illustrate the scores, for TensorBoard.

        The pictures are drawn whenever the best epoch improves, so they must be
        few and always show equal examples.

        Returns:
            dict, name -> uint8 `[height, width, 3]`.
        """
        return {}

    def points(self, most=FEW_POINTS):
        """Returns embeddings for TensorBoard's projector or a map.

        Args:
            most: maximum numbers (images, captions per image) to return.

        Returns:
            A `visualization.plots.Points`; None if the embeddings share no
            space.
        """
        return None


class Together(Scores):
    """The scores of several evaluators.

    The first scores are saved, watched, and combined with a second network's.

    Args:
        parts: list of `Scores`.
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
        """Returns the first scores combined with another network's scores."""
        return self.parts[0].combine(other, weight)

    def pair_scores(self, records):
        """Returns the `pair_scores` of the first scores."""
        return self.parts[0].pair_scores(records)

    def metrics(self, **options):
        """Returns all metrics; each score gets only its own options."""
        found = {}
        for part in self.parts:
            own = options.keys() & set(part.options)
            found |= part.metrics(**{name: options[name] for name in own})
        return found

    def with_bank(self, bank, temperature):
        """Returns these scores with the first levelled by a bank of queries."""
        first, *others = self.parts
        return Together([first.with_bank(bank, temperature), *others])

    def pictures(self):
        """Returns all pictures."""
        return {k: v for part in self.parts for k, v in part.pictures().items()}

    def points(self, most=FEW_POINTS):
        """Returns all points, in one space."""
        return joined([part.points(most) for part in self.parts])


def spread_evenly(count, most):
    """Returns at most `most` of the rows 0 to `count - 1`, evenly spread."""
    picks = min(count, most)
    return (np.arange(picks) * count) // max(picks, 1)


def check_same_examples(records, others, names=_SAME):
    """Raises a ValueError if two runs scored different images or captions.

    Args:
        records: `CaptionedImages` of a split in the first run.
        others: `CaptionedImages` of the split in the second run.
        names: attributes of `CaptionedImages` that must be equal.
    """
    for name in names:
        both = (list(getattr(each, name)) for each in (records, others))
        for row, (one, other) in enumerate(itertools.zip_longest(*both)):
            if one != other:
                raise InputError(
                    "--combine_with",
                    "be a run on equal images and captions",
                    f"in split {records.split} other {name}, {shown(one)} and "
                    f"{shown(other)} in row {row}",
                    "Evaluate both on one captions file and split.",
                )


class TaskData:
    """The data of a run: checked, fitted, loaded by split and batched.

    ::

        data.resume(state, splits, where)    # a resumed run
        data.make()                          # results of recipes
        data.check(queries)                  # raises errors early
        fitted  = data.fit()                 # words, sizes, ...
        train   = data.load("train", fitted)
        batches = data.batches(train)
        for each epoch:
            data.start_epoch(network, train, epoch)
            batches.epoch = epoch
            steps on batches.dataset, batches.num_batches of them

    Only the task looks inside the examples that `load` returns. Other code may
    use two of their members: `counts` (name -> int, numbers of examples) and
    `samples()` (name of a layer -> arrays, from which layers that need
    statistics of the training split compute them).

    Attributes:
        fits: names that `fit` always returns.
        extracts: the features that the run extracts without a recipe, in words;
            or "".
        mining: miner of the batches, as in `EmbeddingNetwork.compile`; None for
            only images and captions.
        held: state kept from epoch to epoch, name -> JSON value or NumPy array.
            A checkpoint saves it and a resumed run starts with it.
        encoders: the encoders of images and texts in a few words; "" if they
            are not reported.
        usual: (title, values) of the defaults for flags that were not given:
            their purpose in a few words, and flag -> value.
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
        """Restores the fitted values and the held state before data are read.

        Args:
            state: `checkpoints.RunState` of the run.
            splits: names of splits whose data must match the fitted values; a
                split need not exist.
            where: path of the checkpoint, for messages.

        Raises:
            ValueError: the data differ, or a value cannot come from `fit`.
        """
        check_fitted_kinds(state.fitted, where, self.fits)
        self.held = state.held

    def begin_with(self, trained, splits):
        """Takes over words and feature descriptions before data are read.

        Args:
            trained: the `trained.Trained` that a new run starts from.
            splits: as in `resume`.

        Raises:
            ValueError: the data of the run were made in a different way.
        """

    def missing(self):
        """Returns the `tasks.recipes.recipe.Thing`s that have yet to be made.

        All of them can be made, as far as can be checked in advance. Parts
        precede the whole.
        """
        return []

    def make(self):
        """Makes the missing results of recipes."""
        make_all(self.missing())

    @property
    def test_split(self):
        """The split that is reported at the end; "" if there is none."""
        return self.settings.run.test_split

    def check(self, queries=()):
        """Raises an error if the run lacks an input.

        This method is called before the run computes or writes.

        Args:
            queries: example queries for the exported model.

        Raises:
            ValueError, FileNotFoundError: a split, photos or features are
                missing, or flags contradict each other.
        """

    def fit(self):
        """Returns the values fitted on the training split before any step.

        Returns:
            dict, name -> JSON value or NumPy array, which checkpoints keep: all
            facts about the data that the network, `load` and endpoints need.
        """
        raise NotImplementedError

    def load(self, split, fitted):
        """Returns the examples of a split."""
        raise NotImplementedError

    def notes(self, fitted):
        """Returns facts about the data to print: title -> text.

        Args:
            fitted: dict that `fit` returned when the run started.
        """
        return {}

    def start_epoch(self, network, train, epoch):
        """Prepares an epoch, counted from 0; later calls may read `held`."""

    def batches(self, train):
        """Returns the batches of one epoch, as `data.EpochBatches`."""
        raise NotImplementedError


class Evaluator:
    """Computes the scores of a network on a split.

    Attributes:
        best_metric: metric of the dev split that chooses the best epoch; larger
            is better.
    """

    best_metric = ""

    def scores(self, network, examples):
        """Returns the `Scores` of a network on a split.

        Args:
            network: network that the model's `Builder` built.
            examples: examples that `TaskData.load` returned for the split.
        """
        raise NotImplementedError


class Exporter:
    """Makes the endpoints of a SavedModel and runs example queries on it.

    Attributes:
        answers_queries: whether the task supports `answer`.
        queries: example queries that are used if the user names none.
    """

    answers_queries = False
    queries = ()

    def endpoints(self, network, fitted):
        """Returns the `serving.endpoints.Endpoints` of the SavedModel.

        Args:
            network: the built network.
            fitted: dict that `TaskData.fit` returned when the run started.
        """
        raise NotImplementedError

    def answer(self, saved_model, queries, folder):
        """Runs example queries on an exported model; returns text to print.

        Args:
            saved_model: folder of the SavedModel.
            queries: list of strings.
            folder: folder of the run, for pictures.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, with its settings and the model that is trained for it.

    ::

        task.check(queries)                        # raises errors early
        fitted   = task.data.fit()                 # words, sizes, ...
        network  = task.model.build(task.settings, fitted)
        task.compile(network, steps_per_epoch)
        for each epoch:
            steps on batches of task.data
            metrics = task.scores(network, dev).metrics()
        endpoints = task.exporter.endpoints(network, fitted)

    Args:
        settings: the run's `Settings`.
        model: `Builder` of the model.
        data: `TaskData` of the task.
        evaluators: tuple of `Evaluator`; the first chooses the best epoch.
        exporter: `Exporter` of the task.
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
        """Raises an error if the run lacks an input.

        Args:
            queries: example queries for the exported model.

        Raises:
            ValueError, FileNotFoundError: as in `TaskData.check`, or the task
                supports no queries.
        """
        if queries and not self.exporter.answers_queries:
            raise InputError(
                "--example_query",
                "be used with a task that answers queries",
                f"--example_query={queries[0]} with "
                f"--task={self.settings.run.task}",
                "Leave it out.",
            )
        self.data.check(queries)

    def compile(self, network, steps_per_epoch):
        """Compiles a network by the settings, with the miner of the data."""
        mining = self.data.mining
        self.model.compile(network, self.settings, steps_per_epoch, mining)

    def describe(self, network):
        """Returns a few words on the network that is trained."""
        if not self.data.encoders:
            return self.settings.run.model
        return f"{self.data.encoders} -> {network.embedding_dim}"

    def scores(self, network, examples):
        """Returns the `Scores` of every evaluator as one object."""
        found = [one.scores(network, examples) for one in self.evaluators]
        return found[0] if len(found) == 1 else Together(found)


class TaskSpec(NamedTuple):
    """The composition of a task from settings: an entry of `registry.TASKS`.

    Args:
        compose: (settings, model) -> `Task`; the model is its `Builder`.
        flag_groups: names of the groups of `tasks.settings.settings` that the
            task reads.
        fixed: (flag, value) of flags that the task fixes at one value.
    """

    compose: Callable
    flag_groups: tuple = ()
    fixed: tuple = ()
