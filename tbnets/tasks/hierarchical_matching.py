"""Image-sentence matching that finds out which regions phrases name."""

import dataclasses
import functools

from tbnets.data.phrase_pairs import CHOICE
from tbnets.errors import InputError
from tbnets.evaluation.correspondences import evaluate_correspondences
from tbnets.evaluation.tables import region_phrase_lines
from tbnets.rounding import per_cent
from tbnets.serving.node_endpoints import node_endpoints
from tbnets.tasks import (
    correspondence_views,
    phrase_links,
    views,
)
from tbnets.tasks.hierarchical_data import HierarchicalData
from tbnets.tasks.matching import MatchingTask
from tbnets.tasks.region_scores import TRUE_REGIONS
from tbnets.tasks.task import FEW_POINTS

CORRESPONDENCES = "correspondences"
EMBED_PHRASES = "embed_phrases"
_RIGHT_REGIONS = (
    "regions of phrases: {correspondence_accuracy} right, "
    "{correspondence_chance} by chance, {correspondence_whole_photo} by the "
    "whole photo, at most {correspondence_upper_bound}"
)
_POINTING = (
    "their centre in the box: {correspondence_pointing_accuracy}, "
    "{correspondence_pointing_chance} by chance, "
    "{correspondence_pointing_whole_photo} by the whole photo"
)


class HierarchicalMatching(MatchingTask):
    """Image-sentence matching by HM-LSTM.

    For the first `correspondence_epochs` the network learns from photos and
    sentences alone. Then, before each epoch, every noun phrase of the
    training split is given the most similar candidate of its photo: a region,
    or the photo. The epoch learns from these pairs too, each weighed by its
    similarity. What was found is `held`.

    Where links of phrases to boxes are known (`--phrases`, or scenes), they
    tell how many phrases were given a right region. Nothing is learned of
    them.

    Source: Niu et al. 2017, Fig. 3. Departures: an epoch stands for each
    "fine-grained embedding learning", whose length the paper does not tell.
    """

    flag_groups = (*MatchingTask.flag_groups, "regions")
    measure_options = (*MatchingTask.measure_options, "region_phrase_ranking")
    make_data = HierarchicalData
    about_pictures = (
        f"{MatchingTask.about_pictures} {correspondence_views.WHAT_IS_SHOWN}"
    ).strip()

    def __init__(self, settings):
        super().__init__(settings)
        self._links = {}

    def scores(self, network, examples):
        """Embeds a split, and gives its phrases regions.

        Returns:
            dict as `matching_scores` describes it; `EMBED_PHRASES`, a
            function of rows of phrases; and `CORRESPONDENCES`, the arguments
            of `evaluate_correspondences`, where links are known.
        """
        matcher = self.data.matcher(network)
        scores = super().scores(network, examples) | {
            EMBED_PHRASES: functools.partial(matcher.embed_phrases, examples)
        }
        if not self.data.knows_links:
            return scores
        links = self._links_of(examples)
        found = matcher.match(examples, "regions of phrases")
        return scores | {
            CORRESPONDENCES: (
                found[CHOICE],
                examples.regions.candidates,
                links,
            ),
            TRUE_REGIONS: functools.partial(
                matcher.rank_true_regions, examples, links
            ),
        }

    def _links_of(self, examples):
        """Returns the `Links` of a split; finds them once."""
        split = examples.records.split
        if split not in self._links:
            self._links[split] = phrase_links.find_links(
                self.data.known(split), examples.records, examples.phrases
            )
        return self._links[split]

    def measure(
        self,
        scores,
        protocol="full",
        text_to_text=True,
        region_phrase_ranking=False,
    ):
        """Returns the metrics of retrieval, and of correspondences.

        Args:
            scores: of a split.
            protocol: as of `MatchingTask.measure`.
            text_to_text: likewise.
            region_phrase_ranking: whether those of `evaluation.pair_ranks`
                come too.

        Raises:
            ValueError: these are asked for where no link is known.
        """
        scores = dict(scores)
        scores.pop(EMBED_PHRASES, None)
        known = scores.pop(CORRESPONDENCES, None)
        rank = scores.pop(TRUE_REGIONS, None)
        if region_phrase_ranking and rank is None:
            raise InputError(
                "`--region_phrase_ranking` must come with a run that knows "
                "links of phrases to boxes, and with one run. Received: none "
                "that are known. Train with --phrases, which tells them for "
                "measuring, or leave out --combine_with."
            )
        metrics = super().measure(scores, protocol, text_to_text)
        if known:
            metrics |= evaluate_correspondences(*known)
        return metrics | (rank() if region_phrase_ranking else {})

    def pictures(self, scores, examples):
        """Returns answered captions, and photos with the regions of phrases.

        Without photos, as with features alone, there are none.
        """
        pictures = super().pictures(scores, examples)
        folder = views.shown_photos(self.settings, examples.records)
        if folder is None or CORRESPONDENCES not in scores:
            return pictures
        choices = scores[CORRESPONDENCES][0]
        return pictures | correspondence_views.draw_correspondences(
            choices, examples, folder
        )

    def points(self, scores, examples, most=FEW_POINTS):
        """Returns images, captions and noun phrases as points of one space."""
        points = super().points(scores, examples, most)
        _, captions = views.shown_captions(examples.records, most)
        rows = correspondence_views.shown_phrases(examples, captions)
        vectors = scores[EMBED_PHRASES](rows)
        return correspondence_views.with_phrases(
            points, examples, rows, vectors
        )

    def table(self, metrics, title=""):
        """Returns recalls and ranks, and two lines on correspondences."""
        table = super().table(metrics, title)
        if "correspondence_accuracy" not in metrics:
            return table
        percent = {
            name: f"{per_cent(value)} %"
            for name, value in metrics.items()
            if name.startswith("correspondence_")
        }
        lines = [
            line.format_map(percent) for line in (_RIGHT_REGIONS, _POINTING)
        ]
        return "\n".join([table, *lines, *region_phrase_lines(metrics)])

    def headline(self, row):
        """Returns recalls, and the share of phrases with a right region."""
        line = super().headline(row)
        accuracy = row.get("dev/correspondence_accuracy")
        if accuracy is None:
            return line
        chance = per_cent(row["dev/correspondence_chance"])
        return f"{line}  regions {per_cent(accuracy):>4} (chance {chance})"

    def endpoints(self, network, fitted):
        """Returns those of matching, and of regions and phrases."""
        endpoints = super().endpoints(network, fitted)
        found = node_endpoints(
            network, endpoints.tokenizer, fitted["region_dim"]
        )
        return dataclasses.replace(
            endpoints, functions=endpoints.functions | found
        )
