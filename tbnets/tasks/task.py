"""Defines the base class of tasks, `Task`.

To add a task, write a subclass of `Task` and a subclass of `Scores`, and add
the task to `registry.TASKS`.
"""

from typing import TypedDict, get_type_hints

import numpy as np

from tbnets.data.open import Data
from tbnets.data.photos import MATCHED
from tbnets.data.store.reader import extraction_differences
from tbnets.errors import InputError
from tbnets.files import is_kind, shown
from tbnets.tasks import texts
from tbnets.tasks.builders import compile_network
from tbnets.tasks.own_photos import OwnPhotos
from tbnets.tasks.photo_readers import photo_reader, weights_of_run
from tbnets.tasks.recipes import plan
from tbnets.tasks.settings.settings import Settings


class Fitted(TypedDict, total=False):
    """The values that `Task.fit` computes from the training split.

    The network, `Task.load` and the endpoints need these JSON values and NumPy
    arrays, which are saved in checkpoints. `words`, `image_dim` and `text_dim`
    are always present. The other values depend on the flags.

    Attributes:
        words: the vocabulary; [] if the encoder reads features, or is a preset.
        longest_text: maximum number of words in a text.
        image_dim: number of features of an image; None for pixels.
        text_dim: number of features of a text; None for words.
        region_dim: number of features of a region, besides those of images.
        image_features_made_by: description of the images' features; {} if
            unknown.
        text_features_made_by: description of the texts' features.
        region_features_made_by: description of the regions' features.
        text_encoder_made_by: digest of a trained preset's tokenizer.
        image_preset: config of the preset that encodes pixels.
        word_vectors: pretrained vectors, float `[num_words, dim]`.
        word_vectors_coverage: number of words with a vector.
        left_out: reason for each image that is skipped.
        split_cuts: thresholds of splits that are drawn at random.
        recipes: flags of the recipes.
        begun_with: number of words and SHA-256 digest of the model of --from.
    """

    words: list[str]
    longest_text: int
    image_dim: int | None
    text_dim: int | None
    region_dim: int | None
    image_features_made_by: dict
    text_features_made_by: dict
    region_features_made_by: dict
    text_encoder_made_by: dict
    image_preset: dict
    word_vectors: np.ndarray
    word_vectors_coverage: dict
    left_out: dict[str, str]
    split_cuts: list[float]
    recipes: dict
    begun_with: dict


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
    for name, kind in get_type_hints(Fitted).items():
        if name not in {*fitted, *required}:
            continue
        value = fitted.get(name, "")
        if not is_kind(value, kind) or not _MORE.get(name, lambda _: 1)(value):
            what = f"whose `{name}` is {shown(value)}, not {kind}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a valid checkpoint. Received: a checkpoint "
                f"{what}. Use the run's other checkpoint, best.npz or last.npz."
            )


class Task:
    """Base class of tasks on images with captions.

    A task loads data, computes scores and makes endpoints::

        task.resume(state, where)            # a resumed run
        task.make()                          # own photos' features, recipes
        task.check(queries)                  # raises errors early
        fitted  = task.fit()                 # `Fitted`: words, sizes, ...
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
        best_metric: dev metric that selects the best epoch. Larger is better.
        answers_queries: whether the exported model answers example queries.
        example_queries: default queries, used if the user sets none.
        of_phrases: whether the texts are phrases instead of sentences.
        made_by: dict from each feature flag to the key in `fitted` that holds
            the description of those features.
        mining: miner with which the network is compiled, or None.
        usual_files: names of the flag files in `configs/usual` that contain
            defaults for flags that the user left unset.
        extracts: description of the features that the run extracts without a
            recipe, or "".
        own_photos: the run's `OwnPhotos`, or None if the run extracts no
            features.
        data: the run's `data.open.Data`.
        texts: the run's `Texts`.
        held: dict of JSON values or arrays, kept between epochs and saved in
            checkpoints.
        memory_limit_mb: memory for `scores`, in MiB.
    """

    flag_groups = ()
    best_metric = ""
    answers_queries = False
    example_queries = ()
    of_phrases = False
    made_by = {}
    mining = None
    usual_files = ()
    extracts = ""
    memory_limit_mb = 512

    def __init__(self, settings: Settings):
        self.settings = settings
        self.held = {}
        photos = OwnPhotos(settings) if settings.reads_photo_folder else None
        self.own_photos, sources = photos, settings.sources()
        self.data = Data(sources, photos, self.of_phrases, plan.read_recipes)
        self.texts = texts.Texts(settings, self.data)

    def split(self, name):
        """Returns the `SplitData` of a split."""
        return self.data.split(name)

    @property
    def train(self):
        """The `SplitData` of the training split."""
        return self.split(self.settings.run.train_split)

    @property
    def test_split(self):
        """The name of the test split, or "" if the data have no such split."""
        name = self.settings.run.test_split
        return name if self.data.has(name) else ""

    @property
    def last(self):
        """The `SplitData` of the test split or, if there is none, of dev."""
        return self.split(self.test_split or self.settings.run.dev_split)

    def resume(self, state, where):
        """Restores the state of a resumed run, before any data are read.

        `state` is the `checkpoints.RunState` that was read from the path
        `where`. Raises ValueError if a fitted value is invalid. Features that
        were extracted differently raise an error when they are opened.
        """
        fitted = state.fitted
        check_fitted_kinds(fitted, where, ("words", "image_dim", "text_dim"))
        self.held = state.held
        if self.own_photos:
            self.own_photos.remember(fitted)
        self.data.cuts = fitted.get("split_cuts")
        self._expect_made_by(fitted, where)
        self._check_recipes(fitted.get("recipes", {}), where)
        if begun := fitted.get("begun_with"):
            self.texts.begin_with(fitted["words"], begun)

    def begin_with(self, trained):
        """Uses a trained model's words and the extraction of its features.

        Features that were extracted differently, apart from the boxes and the
        dtype, raise an error when they are opened.
        """
        fitted, but = trained.fitted, ("proposals", "store")
        self._expect_made_by(fitted, trained.path, but)
        words = fitted["words"]
        begun = {"sha256": trained.sha256, "words": len(words)}
        self.texts.begin_with(words, begun)
        if self.own_photos:
            made_by = fitted.get("image_features_made_by", {})
            self.own_photos.make_as(made_by)

    def _expect_made_by(self, fitted, where, but=()):
        for flag, name in self.made_by.items():
            if made_by := fitted.get(name):
                self.data.expect_made_by(flag, made_by, where, but)

    def _check_recipes(self, before, where):
        now = plan.recorded_flags(self.data) if before else {}
        for flag in before.keys() & now.keys():
            for item in before[flag].keys() & now[flag].keys():
                old, new = before[flag][item], now[flag][item]
                new = {key: new.get(key, old[key]) for key in old}
                if lines := extraction_differences(old, new, where, item):
                    expected = "name the recipe with which the run was started"
                    received = f"{item}, which differs: {'; '.join(lines)}"
                    raise InputError(f"--{flag}", expected, received)

    def missing(self):
        """Returns the missing recipe results, in the order to compute them."""
        self.texts.check_preset()
        return plan.missing(self.data)

    def make(self):
        """Computes the missing results of recipes."""
        for result in self.missing():
            result.make_if_missing()

    def check(self, queries=()):
        """Raises an error if inputs are missing or flags contradict each other.

        The run calls this method before `fit`. `queries` are example queries
        for the exported model.
        """
        if queries and not self.answers_queries:
            expected = "be used with a task that supports queries"
            received = f"--task={self.settings.run.task}"
            raise InputError("--example_query", expected, received)

    def fit(self) -> Fitted:
        """Returns the `Fitted` values of the texts, the splits and the recipes.

        Subclasses add the values of images and regions.
        """
        fitted = self.texts.fit()
        if self.data.cuts:
            fitted["split_cuts"] = self.data.cuts
        if recipes := plan.recorded_flags(self.data):
            fitted["recipes"] = recipes
        return fitted

    def load(self, split, fitted: Fitted):
        """Returns the examples of a split."""
        raise NotImplementedError

    def notes(self, fitted):
        """Returns facts about the data to print, as {title: text}."""
        splits, facts = self.data.check_splits(), {}
        if overlap := self.data.overlaps(splits):
            facts["overlap"] = overlap
        if unused := self.data.unused_splits(splits):
            facts["not used"] = unused
        if self.data.cuts:
            parts = self.data.parts("records", splits).items()
            sizes = ", ".join(f"{p.num_images} {name}" for name, p in parts)
            text = f"drawn by image, as the captions have none: {sizes}"
            facts["splits"] = text
        if self.data.captions.matches:
            facts["names"] = MATCHED
        return facts | texts.notes(fitted)

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

    def photo_reader(self, made_by):
        """Returns the network that computes features of photos, or None.

        `made_by` describes the features. Returns None without --cnn_weights.
        """
        weights = weights_of_run(self.settings, self.data.original_sources)
        return photo_reader(made_by, weights)

    def endpoints(self, network, fitted: Fitted):
        """Returns the `serving.endpoints.Endpoints` of the SavedModel."""
        raise NotImplementedError

    def answer(self, saved_model, queries, folder):
        """Runs example queries on an exported model and returns text to print.

        Writes pictures to `folder`, the folder of the run.
        """
        raise NotImplementedError
