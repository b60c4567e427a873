"""Phrase localization: its phrases, regions and batches of both."""

import tqdm

from tbnets.data.splits import NoSuchSplit
from tbnets.errors import InputError
from tbnets.identity import rows_of
from tbnets.localization import hard_negatives
from tbnets.localization.batches import PhraseBatches
from tbnets.localization.sampler import PhraseSampler
from tbnets.tasks import (
    inputs,
    phrase_inputs,
    plan,
    text_inputs,
    views,
)
from tbnets.tasks.fitted import SIDES
from tbnets.tasks.task_data import TaskData
from tbnets.text.vocabulary import Vocabulary


class LocalizationData(TaskData):
    """Phrases with regions; its examples are `PhraseExamples`.

    Args:
        settings: the run's settings.
        scorer: function of a network that returns its `RegionScorer`.
    """

    fits = SIDES

    def __init__(self, settings, scorer):
        super().__init__(settings)
        self._scorer = scorer
        self._records = {}
        self._phrases = {}
        self._told = set()
        self._sampler = None

    def records(self, split):
        """Returns the `CaptionedImages` of a split; reads each once."""
        if split not in self._records:
            found = inputs.load_records(self.settings, split)
            self._records[split] = found
        return self._records[split]

    def phrases(self, split):
        """Returns the `PhraseRegions` of a split; reads each once."""
        if split not in self._phrases:
            store, rows = self.regions(split, checked=False)
            self._phrases[split], problems = phrase_inputs.load_phrases(
                self.settings, self.records(split), store.sizes[rows]
            )
            self._tell(split, [p for p in problems if p not in self._told])
        return self._phrases[split]

    def _tell(self, split, problems):
        """Says once what was left out; splits may share a file."""
        self._told.update(problems)
        if problems:
            tqdm.tqdm.write(
                f"left out  {len(problems)} bad rows of phrases, read for "
                f"{split}; the first: {problems[0]}"
            )

    def regions(self, split, checked=True):
        """Returns the store of regions, and the rows of a split's photos."""
        records = self.records(split)
        return phrase_inputs.open_regions(self.settings, records, checked)

    @property
    def reads(self):
        """What reads regions and phrases."""
        settings = self.settings
        store, _ = self.regions(settings.train_split, checked=False)
        return f"regions of {store.dim} + {settings.text_encoder}"

    def has_split(self, split):
        """Tells whether the captions have a split with images."""
        try:
            return self.records(split).num_images > 0
        except NoSuchSplit:
            return False

    def check(self, queries=()):
        """Refuses a run whose splits, phrases or regions are not there."""
        settings = self.settings
        phrase_inputs.first_hard_epoch(settings)
        if getattr(settings, "jit_compile", False):
            raise InputError(
                "`--jit_compile` must be off with --task=localization. "
                "Received: --jit_compile. Each batch has another number of "
                "regions, and XLA would compile each of them: leave it out."
            )
        splits = self._splits()
        for split in splits:
            self._check_split(split)
        if settings.cnn_weights and settings.export:
            store, _ = self.regions(settings.train_split, checked=False)
            phrase_inputs.build_region_reader(
                settings, {"image_features_made_by": store.made_by}
            )

        if settings.images and not settings.scenes:
            for split in splits:
                inputs.load_photos(settings, self.records(split))

    def _splits(self):
        """Returns the names of the splits that are asked for, and there."""
        settings = self.settings
        names = [settings.train_split, settings.dev_split]
        has_test = self.has_split(settings.test_split)
        return names + [settings.test_split] * has_test

    def _check_split(self, split):
        """Refuses a split without phrases, or with others than the rest."""
        settings = self.settings
        try:
            phrases = self.phrases(split)
        except NoSuchSplit as error:
            names = ", ".join(map(repr, error.names))
            raise InputError(
                f"`--captions` must have the split {split!r}. Received: "
                f"{error.path}, which has {names or 'none'}. Set "
                "--train_split, --dev_split or --test_split."
            ) from error
        if not phrases.num_phrases:
            raise InputError(
                "`--phrases` must hold phrases of every split. Received: "
                f"--phrases={settings.phrases}, without any of split {split} "
                "that has a box. Name other phrases, or other splits."
            )
        store, _ = self.regions(split, checked=False)
        first, _ = self.regions(settings.train_split, checked=False)
        if store.dim != first.dim:
            raise InputError(
                "`--regions` must be as wide in every split. Received: "
                f"{first.dim} numbers a region in {settings.train_split}, "
                f"{store.dim} in {split}. Extract them alike."
            )
        if settings.text_encoder == "features":
            inputs.load_text_features(settings, phrases.as_captions())

    def fit(self):
        """Returns the words of the training phrases, and feature sizes.

        Returns:
            dict as that of `MatchingData.fit`; images are regions.
        """
        settings = self.settings
        spoken = self.phrases(settings.train_split).as_captions()
        store, _ = self.regions(settings.train_split)
        fitted = {
            "words": [],
            "image_dim": store.dim,
            "text_dim": None,
            "image_features_made_by": store.made_by,
            "text_features_made_by": {},
        }
        if settings.text_encoder == "features":
            rows = inputs.load_text_features(settings, spoken)
            fitted["text_dim"] = rows.shape[0]
            fitted["text_features_made_by"] = rows.features.made_by
            return fitted
        vocabulary, longest = inputs.build_vocabulary(settings, spoken)
        fitted["words"] = list(vocabulary.words)
        fitted["longest_text"] = longest
        return fitted | text_inputs.load_word_vectors(
            settings, vocabulary, spoken.captions
        )

    def check_same(self, fitted, splits, where):
        """Refuses features that were made otherwise than before."""
        for flag, made in (("regions", "image"), ("text_features", "text")):
            made_by = fitted.get(f"{made}_features_made_by")
            if made_by:
                inputs.check_features(
                    self.settings, splits, made_by, where, flag
                )

    def load(self, split, fitted):
        """Returns the `PhraseExamples` of a split."""
        words, phrases = fitted["words"], self.phrases(split)
        store, rows = self.regions(split)
        ids = self.records(split).image_ids
        return phrase_inputs.load_examples(
            self.settings,
            phrases,
            store,
            rows[rows_of(phrases.images.image_ids, ids)],
            Vocabulary(words) if words else None,
        )

    def notes(self, fitted):
        """Returns how many phrases are learned from, and what is missing."""
        notes = plan.overlap_notes(self, self._splits())
        found = self._sampler
        if found is not None:
            total = self.phrases(self.settings.train_split).num_phrases
            notes["positives"] = (
                f"{found.num_positives / found.num_drawable:.1f} regions a "
                f"phrase; {total - found.num_drawable} phrases have none"
            )
        dev = self.records(self.settings.dev_split)
        if views.shown_photos(self.settings, dev) is None:
            notes["pictures"] = "none: --images names no folder of the photos"
        return notes | text_inputs.notes(fitted)

    def sampler(self, train):
        """Returns the `PhraseSampler` of the training split."""
        if self._sampler is None:
            sampling = phrase_inputs.build_sampling(self.settings)
            seed = self.settings.seed
            self._sampler = PhraseSampler(train, sampling, seed)
        return self._sampler

    def start_epoch(self, network, train, epoch):
        """Gives the sampler the hard negatives of the last epochs."""
        first, table = phrase_inputs.first_hard_epoch(self.settings), None
        if first is not None and epoch >= first:
            self.held = hard_negatives.recorded(
                self.held,
                first,
                train,
                self.settings.hard_negatives_per_phrase,
                self._scorer(network).scores,
            )
            table = self.held[hard_negatives.TABLE]
        self.sampler(train).hard_negatives = table

    def batches(self, train):
        """Returns the `PhraseBatches` of the training split."""
        return PhraseBatches(train, self.sampler(train))
