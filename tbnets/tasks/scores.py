"""Defines the interface of the scores of a network on a split, `Scores`."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.evaluation.boxes import (
    CANDIDATE_CHOICES,
    CHOICE_ARGUMENTS,
    CHOICES,
    checked_choice,
)
from tbnets.evaluation.grounding import PhraseTable, rank_true_regions
from tbnets.evaluation.retrieval import recall_differences
from tbnets.files import shown
from tbnets.visualization.boxes import ABOUT_PHRASES, draw_phrases

FEW_POINTS = (250, 3)
"""Maximum numbers of images, and of captions per image, in the projector."""
_EXAMPLE_FIELDS = ("image_ids", "captions", "caption_to_image")


class Scores:
    """Base class of the scores of a network on a split.

    Attributes:
        what: description of the scored objects.
        options: names of the options of `metrics`, which are also flags of
            tbnets evaluate.
        about_pictures: sentence that explains `pictures`.
        sides: dict from name to embeddings, float `[n, dim]`, which are
            monitored during training.
        arrays: dict of all inputs of the metrics. Empty if inner products do
            not give the ranking.
    """

    what = "something else"
    options = ()
    about_pictures = ""
    sides = {}
    arrays = {}

    def metrics(self, **options):
        """Returns a flat dict of metrics, computed only with NumPy."""
        raise NotImplementedError

    def combine(self, other, weight):
        """Returns the combined scores of two networks.

        `weight`, in [0, 1], is the weight of `other`, the second network's
        scores.
        """
        raise self._unsupported("--combine_with")

    def difference(self, other):
        """Returns how much the recalls of `other` are above these recalls.

        The result is a dict from the name of a metric to (difference, low,
        high), as in `recall_differences`. Raises ValueError unless `other`
        has scores of the same kind for the same queries.
        """
        raise self._unsupported("--run_dir")

    def with_bank(self, bank, temperature):
        """Returns these scores, normalised with a query bank.

        `bank` contains this network's scores on a second split. `temperature`
        is passed to `score_tiles.normalize`.
        """
        raise self._unsupported("--query_bank")

    def pair_scores(self, records):
        """Returns a score for every pair of a whole image and a caption.

        Raises ValueError if `records` are not the scored `CaptionedImages`.

        Returns:
            (scores, learned): a `PairScores`, and whether the network learned
            the similarity. If not, `scores` are negative distances.
        """
        raise self._unsupported("--combine_with")

    def _unsupported(self, flag):
        received = f"scores of {self.what}"
        supported = "be used with runs whose scores support it"
        return InputError(flag, supported, received, "Leave it out.")

    def pictures(self):
        """Returns a dict of pictures for TensorBoard, uint8 `[h, w, 3]`.

        Pictures are drawn for each new best epoch, and must always show the
        same examples.
        """
        return {}

    def points(self, most=FEW_POINTS):
        """Returns embeddings as `Points` for TensorBoard's projector or a map.

        `most` is a pair: the maximum number of images and the maximum number of
        captions per image. Returns None if images and captions have no shared
        space.
        """
        return None


def phrase_table(phrases, similarities, candidates, images=None, **facts):
    """Returns the `PhraseTable` of `PhraseRegions`.

    `images`, int `[num_phrases]`, contains the rows of the phrases' photos in
    `candidates`; by default, they are those in `phrases`.
    """
    return PhraseTable(
        similarities,
        candidates,
        phrases.phrases,
        phrases.boxes,
        phrases.phrase_to_image if images is None else images,
        phrases.phrase_to_chain,
        phrases.type_masks(),
        **facts,
    )


class PhotoFiles(NamedTuple):
    """Photos of a `PhraseTable`: folder, names of files, and sizes.

    `sizes`, int `[num_images, 2]`, are widths and heights in the pixels of the
    table's boxes.
    """

    folder: pathlib.Path
    names: Sequence[str]
    sizes: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class PhraseScores(Scores):
    """The similarities of a split's phrases to candidate boxes.

    Args:
        table: `PhraseTable`, or None if no boxes of phrases are known.
        compare: function for `grounding.rank_true_regions`, or None if the
            embeddings are unknown.
        photos: `PhotoFiles` of the table's photos, or None.
        sides: embeddings that are monitored during training.
        facts: further metrics.
    """

    what = "phrases and regions"
    about_pictures = ABOUT_PHRASES

    table: PhraseTable | None
    compare: Callable | None = None
    photos: PhotoFiles | None = None
    sides: Mapping = dataclasses.field(default_factory=dict)
    facts: Mapping = dataclasses.field(default_factory=dict)

    @property
    def options(self):
        """The options of `metrics` that have an effect."""
        if self.table is None:
            return ()
        ranking = ("region_phrase_ranking",) if self.compare else ()
        return (*ranking, *CHOICE_ARGUMENTS)

    def metrics(self, region_phrase_ranking=False, **choosing):
        """Returns the metrics of the table, or {} if no boxes are known.

        `region_phrase_ranking` adds the metrics of `rank_true_regions`.
        `choosing` contains arguments of `boxes.checked_choice`.
        """
        if self.table is None:
            return {}
        known = CANDIDATE_CHOICES if self.table.whole_photo else CHOICES
        choice = checked_choice(**choosing, known=known)
        metrics = self.table.metrics(choice) | self.facts
        if region_phrase_ranking:
            metrics |= rank_true_regions(self.table, self.compare)
        return metrics

    def combine(self, other, weight):
        """Returns the combined scores of two networks on the same boxes."""
        if type(other) is not type(self):
            return super().combine(other, weight)
        self._check_same_boxes(other, "--combine_with")
        table = self.table.combine(other.table, weight)
        return dataclasses.replace(self, table=table, compare=None)

    def difference(self, other):
        """Returns how much the recalls of `other` are above these recalls."""
        if type(other) is not type(self):
            return super().difference(other)
        self._check_same_boxes(other, "--run_dir")
        return recall_differences(self.table.ranks(), other.table.ranks())

    def _check_same_boxes(self, other, flag):
        ours, theirs = (
            [each.table.boxes, *each.table.candidates] for each in (self, other)
        )
        same = len(ours) == len(theirs)
        if not same or not all(map(np.array_equal, ours, theirs)):
            expected = "be a run on the same phrases and candidate boxes"
            received = f"{len(ours[0])} and {len(theirs[0])} phrases"
            raise InputError(flag, expected, f"{received}, or other boxes")

    def pictures(self):
        """Draws boxes on photos, or returns {} without photos or boxes."""
        if self.table is None or self.photos is None:
            return {}
        return draw_phrases(self.table, *self.photos)


def check_same_examples(
    records, other_records, names=_EXAMPLE_FIELDS, flag="--combine_with"
):
    """Raises ValueError if two runs scored different images or captions.

    `names` lists the attributes of `CaptionedImages` that are compared. Error
    messages name the `flag` of the second run.
    """
    for name in names:
        lists = (list(getattr(each, name)) for each in (records, other_records))
        for row, (mine, theirs) in enumerate(itertools.zip_longest(*lists)):
            if mine != theirs:
                expected = "be a run on the same images and captions"
                received = f"{shown(mine)} and {shown(theirs)} in row {row} of "
                received += f"the {name} of split {records.split}"
                raise InputError(flag, expected, received)
