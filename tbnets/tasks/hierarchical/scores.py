"""How well the regions are chosen that noun phrases are found to name."""

import dataclasses
import pathlib

import numpy as np

from tbnets.data.phrase_pairs import CHOICE, PairExamples
from tbnets.errors import InputError
from tbnets.evaluation.choices import (
    CANDIDATE_CHOICES,
    CHOOSING,
    MOST_SIMILAR,
    checked_choice,
)
from tbnets.evaluation.correspondences import Links, evaluate_correspondences
from tbnets.tasks.hierarchical import phrase_links, views
from tbnets.tasks.hierarchical.matcher import Matcher
from tbnets.tasks.matching.views import points_of, shown_captions
from tbnets.tasks.scores import FEW_POINTS, Scores
from tbnets.tasks.task import Evaluator
from tbnets.visualization.points import PHRASE


@dataclasses.dataclass(frozen=True, eq=False)
class CorrespondenceScores(Scores):
    """Which candidate of its photo each noun phrase of a split was given.

    Args:
        examples: `PairExamples` of the split.
        matcher: the `Matcher` of the network.
        choices: int16 `[num_phrases]`; None where no links are known.
        links: `Links` that are known; None likewise.
        photos: folder of the photos; None where they are not at hand.
    """

    what = "noun phrases and regions"
    options = ("region_phrase_ranking", *CHOOSING)
    about_pictures = views.WHAT_IS_SHOWN

    examples: PairExamples
    matcher: Matcher
    choices: np.ndarray | None = None
    links: Links | None = None
    photos: pathlib.Path | None = None

    def metrics(self, region_phrase_ranking=False, **choosing):
        """Returns those of `evaluate_correspondences`; {} without links.

        Args:
            region_phrase_ranking: whether those of `evaluation.pair_ranks`
                come too, which rank by similarity, whatever is chosen.
            **choosing: what `evaluation.choices.checked_choice` takes; a
                choice of a candidate.

        Raises:
            ValueError: these are asked for where no link is known, or there
                is no such choice.
        """
        choice = checked_choice(**choosing, known=CANDIDATE_CHOICES)
        if self.links is None:
            if choice.name == MOST_SIMILAR and not region_phrase_ranking:
                return {}
            asked = (
                "region_phrase_ranking" if region_phrase_ranking else "choice"
            )
            raise InputError(
                f"`--{asked}` must come with a run that knows boxes of "
                "phrases. Received: one without. Train with --phrases."
            )
        choices = self.choices
        if choice.name != MOST_SIMILAR:
            choices = self.matcher.match(self.examples, choice)[CHOICE]
        candidates = self.examples.regions.candidates
        metrics = evaluate_correspondences(choices, candidates, self.links)
        if region_phrase_ranking:
            metrics |= self.matcher.rank_true_regions(self.examples, self.links)
        return metrics

    def pictures(self):
        """Returns photos with the regions of phrases, where links are known.

        Without photos, as with features alone, there are none.
        """
        can = self.photos is not None and self.links is not None
        return views.draw_correspondences(self) if can else {}

    def points(self, most=FEW_POINTS):
        """Returns noun phrases of some captions as points."""
        examples = self.examples
        _, captions = shown_captions(examples.records, most)
        rows = views.shown_phrases(examples, captions)
        vectors = self.matcher.embed_phrases(examples, rows)
        texts = [views.said(examples, row) for row in rows]
        own = examples.phrase_images[rows], examples.records, self.photos
        return points_of(PHRASE, vectors, texts, *own)


class Correspondences(Evaluator):
    """Gives the noun phrases of a split regions, and judges by known links.

    Args:
        data: the run's `HierarchicalData`.
    """

    best_metric = "correspondence_accuracy"

    def __init__(self, data):
        self._data = data
        self._links = {}

    def scores(self, network, examples):
        """Returns the `CorrespondenceScores` of some `PairExamples`."""
        matcher, known = self._data.matcher(network), (None, None)
        if self._data.knows_links:
            links = self._links_of(examples)
            known = matcher.match(examples)[CHOICE], links
        photos = self._data.split(examples.records.split).photo_folder
        return CorrespondenceScores(examples, matcher, *known, photos)

    def _links_of(self, examples):
        """Returns the `Links` of a split; finds them once."""
        records = examples.records
        if records.split not in self._links:
            known = self._data.split(records.split).phrases
            self._links[records.split] = phrase_links.find_links(
                known, records, examples.phrases
            )
        return self._links[records.split]
