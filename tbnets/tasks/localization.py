"""Phrase localization: which region of a photo does a phrase name?"""

import numpy as np
import tqdm

from tbnets.data.splits import NoSuchSplit
from tbnets.errors import InputError
from tbnets.evaluation.localization import DIRECTION, evaluate_localization
from tbnets.evaluation.tables import format_localization
from tbnets.identity import rows_of
from tbnets.localization import hard_negatives
from tbnets.localization.batches import PhraseBatches
from tbnets.localization.sampler import PhraseSampler
from tbnets.rounding import per_cent
from tbnets.serving.region_endpoints import region_endpoints
from tbnets.tasks import (
    inputs,
    phrase_inputs,
    plan,
    region_scores,
    region_views,
    sentence_scores,
    text_inputs,
    views,
)
from tbnets.tasks.fitted import SIDES
from tbnets.tasks.task import Task
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import health

ADAPT_PHOTOS = 1000
"""Photos whose regions tell the statistics of features."""


class LocalizationTask(Task):
    """Ranks the regions of a photo for each phrase that is said of it.

    Its examples are `localization.examples.PhraseExamples`: what the networks
    call images are regions, what they call captions are phrases.

    Source: Wang et al. 2018, Sec. 4.
    """

    best_metric = f"{DIRECTION}/recall_at_1"
    flag_groups = ("captions", "features", "regions", "phrases", "texts")
    fits = SIDES
    fixed = (("image_encoder", "features"),)
    about_pictures = region_views.WHAT_IS_SHOWN
    measure_options = ("region_phrase_ranking",)

    def __init__(self, settings):
        super().__init__(settings)
        self._records = {}
        self._phrases = {}
        self._told = set()
        self._sampler = None
        self._scorer = None

    def records(self, split):
        """Returns the `CaptionedImages` of a split; reads each once."""
        if split not in self._records:
            found = inputs.load_records(self.settings, split)
            self._records[split] = found
        return self._records[split]

    def phrases(self, split):
        """Returns the `PhraseRegions` of a split; reads each once."""
        if split not in self._phrases:
            store, rows = self._regions(split, checked=False)
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

    def _regions(self, split, checked=True):
        """Returns the store of regions, and the rows of a split's photos."""
        records = self.records(split)
        return phrase_inputs.open_regions(self.settings, records, checked)

    def has_split(self, split):
        """Tells whether the captions have a split with images."""
        try:
            return self.records(split).num_images > 0
        except NoSuchSplit:
            return False

    def check_plan(self, queries=()):
        """Refuses a run whose splits, phrases or regions are not there."""
        super().check_plan(queries)
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
            store, _ = self._regions(settings.train_split, checked=False)
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
        store, _ = self._regions(split, checked=False)
        first, _ = self._regions(settings.train_split, checked=False)
        if store.dim != first.dim:
            raise InputError(
                "`--regions` must be as wide in every split. Received: "
                f"{first.dim} numbers a region in {settings.train_split}, "
                f"{store.dim} in {split}. Extract them alike."
            )
        if settings.text_encoder == "features":
            inputs.load_text_features(settings, phrases.as_captions())

    def fit_data(self):
        """Returns the words of the training phrases, and feature sizes.

        Returns:
            dict as that of `MatchingTask.fit_data`; images are regions.
        """
        settings = self.settings
        spoken = self.phrases(settings.train_split).as_captions()
        store, _ = self._regions(settings.train_split)
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

    def check_data(self, fitted, splits, where):
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
        store, rows = self._regions(split)
        ids = self.records(split).image_ids
        return phrase_inputs.load_examples(
            self.settings,
            phrases,
            store,
            rows[rows_of(phrases.images.image_ids, ids)],
            Vocabulary(words) if words else None,
        )

    def counts(self, examples):
        """Returns the numbers of photos, regions, things and phrases."""
        chains = examples.phrases.phrase_to_chain
        return {
            "photos": examples.phrases.images.num_images,
            "regions": int(examples.features.counts[examples.image_rows].sum()),
            "things": len(np.unique(chains)),
            "phrases": examples.phrases.num_phrases,
        }

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

    def describe(self, network):
        """Returns what reads phrases, and the embeddings' size."""
        dim = network.input_shapes["images"][-1]
        encoder = self.settings.text_encoder
        return f"regions of {dim} + {encoder} -> {network.embedding_dim}"

    def adapt(self, network, train):
        """Measures regions of the training split where the network asks."""
        if not getattr(network.image_encoder, "needs_statistics", False):
            return
        count = len(train.image_rows)
        some = np.linspace(0, count - 1, min(count, ADAPT_PHOTOS)).astype(int)
        network.image_encoder.adapt(
            train.features.regions(train.image_rows[row])[0]
            for row in np.unique(some)
        )

    def sampler(self, train):
        """Returns the `PhraseSampler` of the training split."""
        if self._sampler is None:
            sampling = phrase_inputs.build_sampling(self.settings)
            seed = self.settings.seed
            self._sampler = PhraseSampler(train, sampling, seed)
        return self._sampler

    def steps_per_epoch(self, train):
        """Returns how many batches an epoch has."""
        return self.sampler(train).num_batches

    def start_epoch(self, network, train, epoch):
        """Gives the sampler the hard negatives of the last epochs."""
        first, table = phrase_inputs.first_hard_epoch(self.settings), None
        if first is not None and epoch >= first:
            self.held = hard_negatives.recorded(
                self.held,
                first,
                train,
                self.settings.hard_negatives_per_phrase,
                self._region_scorer(network).scores,
            )
            table = self.held[hard_negatives.TABLE]
        self.sampler(train).hard_negatives = table

    def batches(self, train):
        """Returns the `PhraseBatches` of the training split."""
        return PhraseBatches(train, self.sampler(train))

    def scores(self, network, examples):
        """Scores the regions of each phrase's photo; see `RegionScorer`."""
        return self._region_scorer(network).scores(examples)

    def _region_scorer(self, network):
        """Returns the `RegionScorer` of a network."""
        if self._scorer is None or self._scorer.network is not network:
            self._scorer = region_scores.RegionScorer(network)
        return self._scorer

    def measure(self, scores, region_phrase_ranking=False):
        """Returns the metrics of `evaluation.localization`.

        Args:
            scores: of a split.
            region_phrase_ranking: whether those of `evaluation.pair_ranks`,
                which compare everything with everything, come too.

        Raises:
            ValueError: these are asked for of two runs taken together.
        """
        rank = scores.get(region_scores.TRUE_REGIONS)
        if region_phrase_ranking and rank is None:
            raise InputError(
                "`--region_phrase_ranking` must come with one run. Received: "
                "two that are combined, which compare a phrase with regions "
                "of its own photo alone. Leave it out, or --combine_with."
            )
        metrics = evaluate_localization(
            scores["similarities"],
            scores["proposals"],
            scores["truth"],
            scores["phrase_to_image"],
            types=scores["types"],
            texts=scores["texts"],
        )
        return metrics | (rank() if region_phrase_ranking else {})

    def combine(self, scores, other, others, split, weight):
        """Returns what `region_scores.combine` makes of two runs."""
        if not isinstance(other, LocalizationTask):
            super().combine(scores, other, others, split, weight)
        return region_scores.combine(scores, others, weight)

    def pair_scores(self, scores, records, split):
        """Returns the `PairScores` by phrases and regions, minus d_rp."""
        phrases = self.phrases(split)
        found = sentence_scores.sentence_scores(scores, phrases, records)
        return found, False

    def health(self, scores):
        """Returns `embedding_health` of both sides."""
        return {
            f"{side}s/{key}": value
            for side in ("region", "phrase")
            for key, value in health.embedding_health(
                scores[f"{side}_embeddings"]
            ).items()
        }

    def pictures(self, scores, examples):
        """Returns a few photos with the true boxes and those found.

        Without photos, as with features alone, there are none.
        """
        records = examples.phrases.images
        folder = views.shown_photos(self.settings, records)
        if folder is None:
            return {}
        return region_views.draw_found_regions(scores, examples, folder)

    def headline(self, row):
        """Returns an epoch's recalls and what they could be at most."""
        names = [f"recall_at_{k}" for k in (1, 5, 10)] + ["upper_bound"]
        cells = [per_cent(row[f"dev/{DIRECTION}/{name}"]) for name in names]
        recalls = " ".join(f"{cell:>5}" for cell in cells[:3])
        return f"dev R@1 R@5 R@10 {recalls} of {cells[3]}"

    def diagnose(self, row):
        """Returns a warning when the embeddings have collapsed, or None."""
        settings = self.settings
        return health.diagnose(row, settings.margin, settings.reduction)

    def table(self, metrics, title=""):
        """Returns recalls, of all phrases and of each type, as a table."""
        return format_localization(metrics, title)

    def endpoints(self, network, fitted):
        """Returns `embed_phrases`, `embed_regions`, `score` and so on."""
        reader = text_inputs.build_text_reader(self.settings, fitted)
        return region_endpoints(
            network,
            reader,
            region_dim=fitted["image_dim"],
            text_dim=None if reader else fitted["text_dim"],
            read_regions=phrase_inputs.build_region_reader(
                self.settings, fitted
            ),
        )

    def served_scores(self, model, split):
        """Scores a split by an exported model, from what a user has.

        Args:
            model: a `served_localizer.ServedLocalizer` that takes captions.
            split: name of the split.

        Returns:
            dict, as that of `scores` without embeddings.
        """
        photos = None
        if model.takes_photos:
            photos = inputs.load_photos(self.settings, self.records(split))
        return region_scores.served_scores(
            model,
            self.phrases(split),
            *self._regions(split),
            photos and photos.paths,
        )
