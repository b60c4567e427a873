"""Image-sentence matching: its photos, sentences and batches of both."""

import numpy as np

from tbnets.data import drawn_splits
from tbnets.data.batches import EpochBatches
from tbnets.data.examples import FeatureRows
from tbnets.data.splits import WHOLE_FILE, NoSuchSplit
from tbnets.tasks import inputs, plan, recipes, text_inputs
from tbnets.tasks.fitted import SIDES
from tbnets.tasks.own_photos import NoPhotos, OwnPhotos, has_own_photos
from tbnets.tasks.task_data import TaskData
from tbnets.text.vocabulary import Vocabulary


class MatchingData(TaskData):
    """Photos with sentences; its examples are `data.examples.Examples`."""

    fits = SIDES

    def __init__(self, settings):
        super().__init__(settings)
        self.own_photos = None
        self._records = {}
        self._cuts = None
        if has_own_photos(settings):
            self.own_photos = OwnPhotos(settings)

    def records(self, split):
        """Returns the `CaptionedImages` of a split; reads each once."""
        if split not in self._records:
            try:
                records = self._kept(inputs.load_records(self.settings, split))
            except NoSuchSplit as error:
                if not self._draws(split, error):
                    raise
                records = self._draw(split)
            self._records[split] = records
        return self._records[split]

    def _kept(self, records):
        """Returns records without photos that are left out."""
        return self.own_photos.kept(records) if self.own_photos else records

    def _draws(self, split, error):
        """Tells whether a split that the captions have not is drawn."""
        settings = self.settings
        told = (settings.train_split, settings.dev_split, settings.test_split)
        return (
            error.names == (WHOLE_FILE,)
            and WHOLE_FILE not in told
            and drawn_splits.can_be_drawn(split)
        )

    def _draw(self, split):
        """Returns the `CaptionedImages` of a drawn split."""
        records = self._kept(inputs.load_records(self.settings, WHOLE_FILE))
        if self._cuts is None:
            self._cuts = drawn_splits.draw_cuts(records.image_ids, records.path)
        return drawn_splits.drawn_split(records, split, self._cuts)

    def images(self, records):
        """Returns the image side of `Examples` for some records."""
        if self.own_photos:
            return self.own_photos.load(records)
        return inputs.load_images(self.settings, records)

    @property
    def reads(self):
        """What reads images and texts."""
        settings = self.settings
        images = settings.cnn if self.own_photos else settings.image_encoder
        return f"{images} + {settings.text_encoder}"

    @property
    def recipe(self):
        """The recipe of a run on the photos of a folder alone."""
        if not self.own_photos:
            return "", {}
        split = plan.existing_split(self, "train_split")
        count = self.records(split).num_images
        return f"{count} photos", recipes.recipe(count)

    def has_split(self, split):
        """Tells whether the captions have a split with images and captions."""
        try:
            return self.records(split).num_captions > 0
        except (NoSuchSplit, NoPhotos):
            return False

    def check(self, queries=()):
        """Refuses a run whose splits, photos or features are not there."""
        plan.check_plan(self, queries)

    @property
    def last_split(self):
        """The split that a run reports on at its end: test, or else dev."""
        settings = self.settings
        if self.has_split(settings.test_split):
            return settings.test_split
        return settings.dev_split

    def fit(self):
        """Returns the training split's words and what its features are.

        Returns:
            dict of `words`, [] with text features; `longest_text`, the number
            of words of the longest caption, where there are words;
            `image_dim` and
            `text_dim`, the sizes of precomputed features, None where there
            are none; `image_features_made_by` and `text_features_made_by`,
            what features were made with, {} where that is unknown.
        """
        settings = self.settings
        if self.own_photos:
            self._extract()
        records = self.records(settings.train_split)
        images = self.images(records)
        of_images = isinstance(images, FeatureRows)
        fitted = {
            "words": [],
            "image_dim": images.shape[0] if of_images else None,
            "text_dim": None,
            "image_features_made_by": (
                images.features.made_by if of_images else {}
            ),
            "text_features_made_by": {},
        }
        if settings.text_encoder == "features":
            rows = inputs.load_text_features(settings, records)
            fitted["text_dim"] = rows.shape[0]
            fitted["text_features_made_by"] = rows.features.made_by
        else:
            vocabulary, longest = inputs.build_vocabulary(settings, records)
            fitted["words"] = list(vocabulary.words)
            fitted["longest_text"] = longest
            fitted |= text_inputs.load_word_vectors(
                settings, vocabulary, records.captions
            )
        if self.own_photos:
            fitted["left_out"] = self.own_photos.left_out
        if self._cuts:
            fitted["split_cuts"] = self._cuts
        return fitted

    def _extract(self):
        """Extracts features of all splits; then knows what is left out."""
        splits, begun = plan.check_splits(self), self.own_photos.has_begun
        self.own_photos.extract([self.records(split) for split in splits])
        self._records.clear()
        if not begun:  # Then splits are drawn of the photos that are kept.
            self._cuts = None
        plan.check_splits(self)

    def remember(self, fitted):
        """Takes over how splits were drawn, and which photos are left out."""
        self._cuts = fitted.get("split_cuts")
        if self.own_photos:
            self.own_photos.remember(fitted)

    def check_same(self, fitted, splits, where):
        """Refuses features that were made otherwise than before."""
        for flag in ("image_features", "text_features"):
            made_by = fitted.get(f"{flag}_made_by")
            if flag == "image_features" and self.own_photos:
                continue  # The cache has one store for each way of making.
            if made_by:
                inputs.check_features(
                    self.settings, splits, made_by, where, flag
                )

    def notes(self, fitted):
        """Returns how splits were drawn, where features are, and words."""
        splits = plan.check_splits(self)
        notes = plan.overlap_notes(self, splits)
        if self._cuts:
            sizes = [
                f"{self.records(name).num_images} {name}" for name in splits
            ]
            notes["splits"] = (
                f"drawn by image, as the captions tell none: {', '.join(sizes)}"
            )
        if self.own_photos:
            notes |= self.own_photos.notes()
        train = self.records(self.settings.train_split)
        if np.count_nonzero(train.captions_per_image) < 2:
            notes["warning"] = (
                "the training split has one image with captions: without "
                "others there is nothing to tell it from. Add images"
            )
        return notes | text_inputs.notes(fitted)

    def load(self, split, fitted):
        """Returns the `Examples` of a split."""
        records = self.records(split)
        return text_inputs.load_examples(
            self.settings, records, self.images(records), _vocabulary(fitted)
        )

    def batches(self, train):
        """Returns the `EpochBatches` of the training split."""
        settings = self.settings
        return EpochBatches(
            train,
            settings.images_per_batch,
            settings.captions_per_image,
            settings.seed,
            settings.image_size,
        )


def _vocabulary(fitted):
    """Returns the `Vocabulary` that was fitted; None with text features."""
    return Vocabulary(fitted["words"]) if fitted["words"] else None
