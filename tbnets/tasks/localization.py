"""Phrase localization: which region of a photo does a phrase name?"""

from tbnets.errors import InputError
from tbnets.evaluation.localization import DIRECTION, evaluate_localization
from tbnets.evaluation.tables import format_localization
from tbnets.rounding import per_cent
from tbnets.serving.region_endpoints import region_endpoints
from tbnets.tasks import (
    inputs,
    phrase_inputs,
    region_scores,
    region_views,
    sentence_scores,
    text_inputs,
    views,
)
from tbnets.tasks.localization_data import LocalizationData
from tbnets.tasks.task import Task
from tbnets.training import health


class LocalizationTask(Task):
    """Ranks the regions of a photo for each phrase that is said of it.

    Its examples are `localization.examples.PhraseExamples`: what the networks
    call images are regions, what they call captions are phrases.

    Source: Wang et al. 2018, Sec. 4.
    """

    best_metric = f"{DIRECTION}/recall_at_1"
    flag_groups = ("captions", "features", "regions", "phrases", "texts")
    fixed = (("image_encoder", "features"),)
    about_pictures = region_views.WHAT_IS_SHOWN
    measure_options = ("region_phrase_ranking",)
    make_data = LocalizationData

    def __init__(self, settings):
        super().__init__(settings)
        self._scorer = None

    def describe(self, network):
        """Returns what reads phrases, and the embeddings' size."""
        dim = network.input_shapes["images"][-1]
        encoder = self.settings.text_encoder
        return f"regions of {dim} + {encoder} -> {network.embedding_dim}"

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
        phrases = self.data.phrases(split)
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
            photos = inputs.load_photos(self.settings, self.data.records(split))
        return region_scores.served_scores(
            model,
            self.data.phrases(split),
            *self.data.regions(split),
            photos and photos.paths,
        )
