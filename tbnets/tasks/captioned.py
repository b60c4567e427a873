"""Defines `CaptionedTask`, the base class of tasks on captioned images."""

import functools
import os

from tbnets.data.open import Data
from tbnets.data.photos import MATCHED
from tbnets.data.store.manifest import extraction_differences
from tbnets.data.store.opening import SIDE_BY_SIDE
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.photo_features import RANDOM, open_photo_features
from tbnets.features.regions import open_averaged_features
from tbnets.tasks import texts
from tbnets.tasks.recipes import kinds
from tbnets.tasks.settings.settings import Settings, unused_flags
from tbnets.tasks.task import Task

WEIGHTS_BY_NAME = ("imagenet", RANDOM)
"""Names of weights. For a file with such a name, write `./imagenet`."""


def weights_of_run(settings: Settings, sources):
    """Returns the weights of the network that reads photos.

    The weights are a file, a Keras Hub preset, or a name such as `imagenet`.
    Returns None if the run has no weights.
    """
    weights = settings.features.cnn_weights
    if settings.reads_photo_folder and hub.is_hub(
        settings.images.image_encoder
    ):
        weights = settings.images.image_encoder
    if not weights:
        return None
    if hub.is_hub(weights):
        return hub.placed(weights, *sources.starts)
    return weights if weights in WEIGHTS_BY_NAME else sources.resolve(weights)


def start_at_photo(settings: Settings, cnn_weights):
    """Returns settings for exporting a model that reads photos.

    `cnn_weights` names the weights that computed the features: `imagenet`, or a
    file, first looked up in the current folder. "" keeps the run's value.
    Raises ValueError if the run's network already reads photos.
    """
    if not cnn_weights:
        return settings
    if settings.image_encoder != "features":
        raise InputError(
            "--cnn_weights",
            "be used with a run on image features",
            f"--cnn_weights={cnn_weights} with "
            f"--image_encoder={settings.image_encoder}, which reads photos",
            "Leave it out.",
        )
    weights = hub.placed(cnn_weights)
    # A name of weights takes precedence over a file in the current folder.
    is_word = hub.is_hub(weights) or weights in WEIGHTS_BY_NAME
    if not is_word and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return settings.replace(cnn_weights=weights)


def photo_reader(made_by, weights):
    """Returns the extractor that computes features of photos or of boxes.

    The extractor is a `PhotoFeatures`, a `SeveralNetworks` for concatenated
    features, or an `AveragedFeatures` for regions. Returns None if `weights` is
    None. Raises ValueError if `made_by`, the features' description, names no
    network or different weights.
    """
    if weights is None:
        return None
    parts = made_by.get(SIDE_BY_SIDE, [made_by])
    of_regions = made_by.get("regions") == "roi_average"
    for part in parts:
        is_plain = of_regions or "regions" not in part
        if "cnn" not in part or not is_plain:
            raise InputError(
                "--cnn_weights",
                "be used with features by tools/extract_image_features.py, of "
                "whole photos or of regions by roi_average",
                f"{part.get('regions', 'features')} without a description, or "
                "regions from several stores",
                "Extract the features again, or leave --cnn_weights out.",
            )
    opened = open_averaged_features if of_regions else open_photo_features
    return opened(made_by, weights)


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
