"""Defines `CaptionedTask`, the base class of tasks on captioned images."""

import functools

from tbnets.data.open import Data
from tbnets.data.photos import MATCHED
from tbnets.data.store.manifest import extraction_differences
from tbnets.errors import InputError
from tbnets.tasks import texts
from tbnets.tasks.photo_readers import photo_reader, weights_of_run
from tbnets.tasks.recipes import kinds
from tbnets.tasks.settings.settings import Settings, unused_flags
from tbnets.tasks.task import Task


class CaptionedTask(Task):
    """Base class of tasks on images with captions.

    Attributes:
        opened: the run's `data.open.Data`.
        texts: the run's `Texts`.
        made_by: dict from each feature flag to the key in `fitted` that holds
            the description of those features.
        of_phrases: whether the texts are phrases instead of sentences.
        encoders: description of the encoders.
    """

    fits = ("words", "image_dim", "text_dim")
    made_by = {}
    of_phrases = False
    encoders = ""

    def __init__(self, settings: Settings, photos=None):
        super().__init__(settings)
        plan = functools.partial(kinds.plan, unused=unused_flags(settings))
        self.opened = Data(settings.sources(), photos, self.of_phrases, plan)
        self.texts = texts.Texts(settings, self.opened)

    def missing(self):
        """Returns the results of recipes that have not been computed yet."""
        self.texts.check_preset()
        return kinds.missing(self.opened)

    def split(self, name):
        """Returns the `SplitData` of a split."""
        return self.opened.split(name)

    @property
    def train(self):
        """The `SplitData` of the training split."""
        return self.split(self.settings.run.train_split)

    @property
    def last(self):
        """The `SplitData` of the test split or, if there is none, of dev."""
        return self.split(self.test_split or self.settings.run.dev_split)

    @property
    def test_split(self):
        """The name of the test split, or "" if the data have no such split."""
        name = self.settings.run.test_split
        return name if self.opened.has(name) else ""

    def fit(self):
        """Returns the values fitted on texts, and facts about the data.

        The facts are `split_cuts`, the thresholds of randomly drawn splits, and
        `recipes`, the flags of the recipes. Empty facts are omitted.
        """
        opened = self.opened
        extra = {
            "split_cuts": opened.cuts,
            "recipes": kinds.recipe_values(opened),
        }
        return self.texts.fit() | {k: extra[k] for k in extra if extra[k]}

    def resume(self, state, splits, where):
        """Restores a run. Raises ValueError if its data have changed."""
        super().resume(state, splits, where)
        self.opened.cuts = state.fitted.get("split_cuts")
        self._check_made_by(state.fitted, splits, where)
        self._check_recipes(state.fitted.get("recipes", {}), where)
        if begun := state.fitted.get("begun_with"):
            self.texts.begin_with(state.fitted["words"], begun)

    def begin_with(self, trained, splits):
        """Uses the vocabulary of a trained model.

        Raises ValueError if the features were extracted differently, apart from
        the boxes and the dtype.
        """
        but = ("proposals", "store")
        self._check_made_by(trained.fitted, splits, trained.path, but)
        words = trained.fitted["words"]
        begun = {"sha256": trained.sha256, "words": len(words)}
        self.texts.begin_with(words, begun)

    def _check_made_by(self, fitted, splits, where, but=()):
        for flag, name in self.made_by.items():
            if made_by := fitted.get(name):
                self.opened.check_made_by(flag, splits, made_by, where, but)

    def _check_recipes(self, before, where):
        now = kinds.recipe_values(self.opened) if before else {}
        for flag in before.keys() & now.keys():
            for item in before[flag].keys() & now[flag].keys():
                old, new = before[flag][item], now[flag][item]
                new = {key: new.get(key, old[key]) for key in old}
                if lines := extraction_differences(old, new, where, item):
                    raise InputError(
                        f"--{flag}",
                        "name a recipe that has not changed since the run was "
                        "started",
                        f"--{flag}={item}, which differs: {'; '.join(lines)}",
                        "Restore the recipe, or start a new --run_dir.",
                    )

    def notes(self, fitted):
        """Returns notes about the splits, their overlaps and the vocabulary."""
        splits, facts = self.opened.check_splits(), {}
        if overlap := self.opened.overlaps(splits):
            facts["overlap"] = overlap
        if self.opened.cuts:
            parts = self.opened.parts("records", splits).items()
            sizes = ", ".join(f"{p.num_images} {name}" for name, p in parts)
            text = f"drawn by image, as the captions have none: {sizes}"
            facts["splits"] = text
        if self.opened.matches:
            facts["names"] = MATCHED
        return facts | texts.notes(fitted)

    def describe(self, network):
        """Returns a text with the encoders and the embedding size."""
        return f"{self.encoders} -> {network.embedding_dim}"

    def photo_reader(self, made_by):
        """Calls the function `photo_reader` with the weights of the run."""
        weights = weights_of_run(self.settings, self.opened.original_sources)
        return photo_reader(made_by, weights)
