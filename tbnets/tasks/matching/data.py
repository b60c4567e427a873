"""Image-sentence matching: its photos, sentences and batches of both."""

import functools

import numpy as np

from tbnets.data.batches import EpochBatches
from tbnets.data.examples import Examples
from tbnets.data.images import decode_images
from tbnets.features import hub
from tbnets.features.hub_vision import PresetPhotos, build_hub_cnn
from tbnets.identity import text_ids
from tbnets.losses.presets import PRESETS
from tbnets.tasks.captioned_data import CaptionedData
from tbnets.tasks.fitted import check_fitted_kinds
from tbnets.tasks.matching.own_photos import OwnPhotos
from tbnets.tasks.matching.usual_flags import usual_flags
from tbnets.tasks.recipes.kinds import recipes
from tbnets.tasks.settings.settings import Settings, unused_flags


class MatchingData(CaptionedData):
    """Photos with sentences; its examples are `data.examples.Examples`.

    Args:
        settings: the run's settings (see `flags`).

    Attributes:
        own_photos: the `OwnPhotos`; None unless the run extracts features.
        images: which part of `SplitData` its examples take: `images`, their
            features, or `photos`.
    """

    def __init__(self, settings: Settings):
        own = OwnPhotos(settings) if settings.reads_photo_folder else None
        super().__init__(settings, own)
        self.own_photos = own
        self._is_extracted, self._preset = False, {}
        # Of own photos the cache has a store for each way of making.
        names = [*["image_features"] * (not own), "text_features"]
        self.made_by = {name: f"{name}_made_by" for name in names}
        self._of_features = settings.image_encoder == "features"
        self.images = "images" if self._of_features else "photos"

    @property
    def encoders(self):
        """What encodes images and texts, in a few words."""
        settings = self.settings
        images = (
            settings.images.cnn if self.own_photos else settings.image_encoder
        )
        return f"{images} + {settings.texts.text_encoder}"

    @property
    def extracts(self):
        """What is extracted of the photos of a folder alone, in words."""
        own, opened = self.own_photos, self.opened
        if not own:
            return ""
        parts = opened.parts("records", opened.check_splits()).values()
        keys = {key for records in parts for key in records.image_ids}
        return (
            f"features of {len(keys)} photos by {self.settings.images.cnn}, "
            f"but for those that are there, would be extracted into {own.cache}"
        )

    @property
    def usual(self):
        """The usual flags of a run on the photos of a folder alone."""
        if not self.own_photos:
            return "", {}
        split = self.opened.existing_split("train_split")
        count = self.split(split).records.num_images
        loss = self.settings.loss
        is_triplets = loss is not None and loss.loss in PRESETS
        usual = usual_flags(count, self.settings.run.from_, is_triplets)
        return f"{count} photos", usual

    def make(self):
        """Makes what recipes name, of texts when it is known of which."""
        self.texts.check_preset()  # Before photos are read, which takes long.
        given, unused = self.opened.given, unused_flags(self.settings)
        flags = "text_features", "trees"
        named = (recipes(flag, given, unused) for flag in flags)
        if self.own_photos and any(named):
            self.own_photos.check()
            self._extract()
        super().make()

    def check(self, queries=()):
        """Refuses a run whose splits, photos or features are not there."""
        splits = self.opened.check_splits()
        if not self.own_photos:
            self._check_images(splits, queries)
        elif not self._is_extracted:
            self.own_photos.check()
        self.texts.check(splits, queries)

    def _check_images(self, splits, queries):
        """Refuses images that are not there, or can not be read when served."""
        settings = self.settings
        self.opened.parts(self.images, splits)
        if not self._of_features:
            self._open_preset()
            return
        if settings.features.cnn_weights and settings.run.export:
            if queries:  # They are answered by photos, and drawn.
                self.opened.parts("photos", splits[-1:])
            self.photo_reader(self.train.images.features.made_by)

    def fit(self):
        """Returns what the training texts tell and what features are.

        Returns:
            dict as of `CaptionedData.fit`, with `image_dim`, the size of
            features, None where there are none; `image_features_made_by`,
            what they were made with, {} where that is unknown; of own photos,
            those `left_out`; and the `image_preset` that encodes pixels, as
            `hub.rebuild` takes it.
        """
        fitted = {"image_dim": None, "image_features_made_by": {}}
        if self.own_photos:
            self._extract()
            fitted["left_out"] = self.own_photos.left_out
        if self._of_features:
            images = self.train.images
            fitted["image_dim"] = images.shape[0]
            fitted["image_features_made_by"] = images.features.made_by
        if self._preset:
            fitted["image_preset"] = self._preset
        return super().fit() | fitted

    def _extract(self):
        """Extracts features of all splits; then knows what is left out."""
        if self._is_extracted:
            return
        self._is_extracted = True
        splits = self.opened.check_splits()
        begun = self.own_photos.has_begun
        self.own_photos.extract([self.split(name).records for name in splits])
        self.opened.forget_splits()
        if not begun:  # Then splits are drawn of the photos that are kept.
            self.opened.cuts = None
        self.opened.check_splits()

    def resume(self, state, splits, where):
        """Takes over which photos are left out, too."""
        if self.own_photos:
            check_fitted_kinds(state.fitted, where, self.fits)
            self.own_photos.remember(state.fitted)
        super().resume(state, splits, where)
        self._preset = state.fitted.get("image_preset", {})

    def begin_with(self, trained, splits):
        """Takes over how features of own photos are made, too."""
        super().begin_with(trained, splits)
        if self.own_photos:
            made_by = trained.fitted.get("image_features_made_by", {})
            self.own_photos.make_as(made_by)

    def notes(self, fitted):
        """Returns how splits were drawn, words, where features are."""
        notes = super().notes(fitted)
        if self.own_photos:
            notes |= self.own_photos.notes()
        if np.count_nonzero(self.train.records.captions_per_image) < 2:
            notes["warning"] = (
                "the training split has one image with captions: without "
                "others there is nothing to tell it from. Add images"
            )
        return notes

    def load(self, split, fitted):
        """Returns the `Examples` of a split."""
        split = self.split(split)
        records, images = split.records, getattr(split, self.images)
        texts = self.texts.rows(split, fitted)
        same = self.settings.texts.equal_texts_match
        ids = text_ids(records.captions) if same else None
        return Examples(records, images, texts, ids)

    def batches(self, train):
        """Returns the `EpochBatches` of the training split."""
        return EpochBatches(train, **self.sampling)

    @property
    def sampling(self):
        """How batches are drawn: arguments of `EpochBatches`."""
        return {
            "images_per_batch": self.settings.batches.images_per_batch,
            "captions_per_image": self.settings.batches.captions_per_image,
            "seed": self.settings.run.seed,
            "image_size": self.image_size,
        }

    def _open_preset(self):
        """Opens the preset that encodes pixels, to know what it is."""
        name, size = (
            self.settings.image_encoder,
            self.settings.images.image_size,
        )
        if hub.is_hub(name) and not self._preset:
            name = hub.placed(name, *self.opened.given.starts)
            found = build_hub_cnn(name, random=True, image_size=size or None)
            self._preset = {**found.preset.config(), "side": found.image_size}

    @functools.cached_property
    def image_size(self):
        """Side of decoded photos in pixels, or what makes them otherwise."""
        if not self._preset:
            return self.settings.images.image_size
        converter = hub.converter_of(self._preset)
        return PresetPhotos(converter, self._preset["side"])

    def photo_reader(self, made_by):
        """Returns what turns encoded photos into the network's input.

        Args:
            made_by: the `image_features_made_by` of what `fit` returned.

        Returns:
            Function string `[n]` -> float32 `[n, ...]`; None where the
            network takes features and `cnn_weights` names no network.

        Raises:
            ValueError: the features' making is unknown, or differs from that
                of the weights.
        """
        if not self._of_features:
            return lambda photos: decode_images(photos, self.image_size)
        return super().photo_reader(made_by)
