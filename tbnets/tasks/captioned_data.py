"""Data of images with captions: what those of all tasks have in common."""

import functools
import os

from tbnets.data.open import Data
from tbnets.data.store.manifest import extraction_differences
from tbnets.data.store.opening import SIDE_BY_SIDE
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.photo_features import RANDOM, open_photo_features
from tbnets.features.regions import open_averaged_features
from tbnets.tasks import texts
from tbnets.tasks.recipes import kinds
from tbnets.tasks.settings.settings import Settings, unused_flags
from tbnets.tasks.task import SIDES, TaskData

# What reads raw photos for a network on features, by --cnn_weights.

WEIGHTS_BY_NAME = ("imagenet", RANDOM)
"""Words for weights; a file that is called so is `./imagenet`."""


def weights_of_run(settings: Settings, sources):
    """Returns the weights of the network that reads photos.

    They are a word such as `imagenet`, a file, or a preset of Keras Hub; None
    where the run names none.

    Args:
        settings: the run's settings.
        sources: the run's `Sources`, whose places files are looked for in.
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
    """Returns settings by which an export begins with the photo.

    Args:
        settings: those of a run.
        cnn_weights: `imagenet` or the weights file that the features were
            made with, from the current folder where it is there; empty: as
            the run's own flag says.

    Raises:
        ValueError: the run's network takes photos already.
    """
    if not cnn_weights:
        return settings
    if settings.image_encoder != "features":
        raise InputError(
            "--cnn_weights",
            "come with a run on features of images",
            f"--cnn_weights={cnn_weights} with "
            f"--image_encoder={settings.image_encoder}, which takes photos",
            "Leave it out.",
        )
    weights = hub.placed(cnn_weights)
    # A word is no file, whatever lies in the current folder.
    is_word = hub.is_hub(weights) or weights in WEIGHTS_BY_NAME
    if not is_word and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return settings.replace(cnn_weights=weights)


def photo_reader(made_by, weights):
    """Returns what turns photos, or boxes in them, into features.

    Args:
        made_by: `Features.made_by` of those that were learned from.
        weights: weights of the network, as of `weights_of_run`, or None.

    Returns:
        A `PhotoFeatures`, or `SeveralNetworks` side by side, or an
        `AveragedFeatures` of regions; None without weights.

    Raises:
        ValueError: their making is unknown, or differs from that of the
            weights.
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
                "come with features that tools/extract_image_features.py "
                "made, of whole photos or of regions by roi_average",
                f"{part.get('regions', 'some')}, which do not tell what made "
                "them, or are of regions of several stores",
                "Extract them anew, or leave --cnn_weights out.",
            )
    opened = open_averaged_features if of_regions else open_photo_features
    return opened(made_by, weights)


class CaptionedData(TaskData):
    """Images with captions, behind one door.

    Args:
        settings: the run's settings (see `flags`).
        own: as of `data.open.Data`.

    Attributes:
        opened: the `data.open.Data`.
        texts: the `Texts`.
        made_by: flag that names features -> what `fit` says made them.
        of_phrases: whether the texts are phrases, not sentences.
    """

    fits = SIDES
    made_by = {}
    of_phrases = False

    def __init__(self, settings: Settings, own=None):
        super().__init__(settings)
        plan = functools.partial(kinds.plan, unused=unused_flags(settings))
        self.opened = Data(settings.sources(), own, self.of_phrases, plan)
        self.texts = texts.Texts(settings, self.opened)

    def missing(self):
        """Returns the `tasks.recipes.recipe.Thing`s that are not there yet.

        Raises:
            ValueError: texts could not be read when the run has ended.
        """
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
        """The `SplitData` that a run reports on at its end: test, or dev."""
        return self.split(self.test_split or self.settings.run.dev_split)

    @property
    def test_split(self):
        """The split that is reported on at the end; "" where none is there."""
        name = self.settings.run.test_split
        return name if self.opened.has(name) else ""

    def fit(self):
        """Returns what the training texts tell, and how splits were drawn.

        Returns:
            dict as of `Texts.fit`; `split_cuts` where they were drawn; and
            what `recipes` say, where some are named.
        """
        opened = self.opened
        more = {
            "split_cuts": opened.cuts,
            "recipes": kinds.recipe_values(opened),
        }
        return self.texts.fit() | {k: more[k] for k in more if more[k]}

    def resume(self, state, splits, where):
        """Takes over how splits were drawn; refuses features made otherwise."""
        super().resume(state, splits, where)
        self.opened.cuts = state.fitted.get("split_cuts")
        self._check_made_by(state.fitted, splits, where)
        self._check_recipes(state.fitted.get("recipes", {}), where)
        if begun := state.fitted.get("begun_with"):
            self.texts.begin_with(state.fitted["words"], begun)

    def begin_with(self, trained, splits):
        """Takes over words; refuses features made otherwise.

        Regions may be other ones, and features stored with other digits.
        """
        but = ("proposals", "store")
        self._check_made_by(trained.fitted, splits, trained.path, but)
        words = trained.fitted["words"]
        begun = {"sha256": trained.sha256, "words": len(words)}
        self.texts.begin_with(words, begun)

    def _check_made_by(self, fitted, splits, where, but=()):
        """Refuses features made otherwise than those that were learned from."""
        for flag, name in self.made_by.items():
            if made_by := fitted.get(name):
                self.opened.check_made_by(flag, splits, made_by, where, but)

    def _check_recipes(self, before, where):
        """Refuses recipes that say otherwise than when the run began.

        So it is told before anything is made anew.
        """
        now = kinds.recipe_values(self.opened) if before else {}
        for flag in before.keys() & now.keys():
            for item in before[flag].keys() & now[flag].keys():
                one, other = before[flag][item], now[flag][item]
                other = {key: other.get(key, one[key]) for key in one}
                if lines := extraction_differences(one, other, where, item):
                    raise InputError(
                        f"--{flag}",
                        "name a recipe that says what it did when the run "
                        "began",
                        f"--{flag}={item}, which differs: {'; '.join(lines)}",
                        "Restore it, or start a new --run_dir.",
                    )

    def notes(self, fitted):
        """Returns how splits were drawn, what they share, and words."""
        splits, found = self.opened.check_splits(), {}
        if overlap := self.opened.overlaps(splits):
            found["overlap"] = overlap
        if self.opened.cuts:
            parts = self.opened.parts("records", splits).items()
            sizes = ", ".join(f"{one.num_images} {name}" for name, one in parts)
            told = f"drawn by image, as the captions tell none: {sizes}"
            found["splits"] = told
        return found | texts.notes(fitted)

    def photo_reader(self, made_by):
        """Returns what turns photos into features, as of `readers`.

        Args:
            made_by: `Features.made_by` of those that were learned from.
        """
        weights = weights_of_run(self.settings, self.opened.given)
        return photo_reader(made_by, weights)
