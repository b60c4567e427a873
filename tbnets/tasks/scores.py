"""What a network says of a split: measured, shown, added to another's."""

import itertools

import numpy as np

from tbnets.checked_files import shown
from tbnets.errors import InputError
from tbnets.visualization.points import joined

FEW_POINTS = (250, 3)
"""Images, and captions of each, with which the projector stays fluent."""
_SAME = ("image_ids", "captions", "caption_to_image")


class Scores:
    """What a network says of a split; a dataclass for each kind.

    Attributes:
        what: what is scored, in a few words.
        options: names of the options of `metrics`, which tools/evaluate.py has
            flags for.
        about_pictures: what `pictures` show, in a sentence.
        sides: name -> embeddings float `[n, dim]` whose health is watched.
        arrays: name -> array, all that the split is measured by; {} where
            more than inner products of embeddings ranks.
    """

    what = "something else"
    options = ()
    about_pictures = ""
    sides = {}
    arrays = {}

    def metrics(self, **options):
        """Returns a flat dict of metrics, by NumPy alone."""
        raise NotImplementedError

    def combine(self, other, weight):
        """Returns the scores of two networks taken together.

        Args:
            other: scores of the same split by another network.
            weight: of the other, in [0, 1].

        Raises:
            ValueError: these can not be taken together.
        """
        raise self._do_not_add_up()

    def with_bank(self, bank, temperature):
        """Returns these scores, levelled by a bank of queries.

        Args:
            bank: scores of another split by the same network.
            temperature: that of `evaluation.query_bank.level`.

        Raises:
            ValueError: there are no queries that a bank could be of.
        """
        raise InputError(
            "`--query_bank` must come with runs of images and captions. "
            f"Received: scores of {self.what}. Leave it out."
        )

    def pair_scores(self, records):
        """Returns what these say of whole images and captions.

        Args:
            records: `CaptionedImages` that are to be scored.

        Returns:
            (scores, learned): an `evaluation.score_tiles.PairScores`, minus
            distances unless they are learned.

        Raises:
            ValueError: they say nothing of that, or are of others.
        """
        raise self._do_not_add_up()

    def _do_not_add_up(self):
        return InputError(
            "`--combine_with` must come with runs whose scores add up. "
            f"Received: scores of {self.what}. Leave it out."
        )

    def pictures(self):
        """Returns pictures of what the scores mean, for TensorBoard.

        They are drawn whenever the best epoch improves: they must be few and
        show the same examples each time.

        Returns:
            dict, name -> uint8 `[height, width, 3]`.
        """
        return {}

    def points(self, most=FEW_POINTS):
        """Returns embeddings for TensorBoard's projector, or for a map.

        Args:
            most: how many images, and captions of each, at most.

        Returns:
            A `visualization.points.Points`; None where there is no space that
            all of them share.
        """
        return None


class Together(Scores):
    """The scores of several evaluators.

    The first ones are saved, watched, and combined with another network's.

    Args:
        parts: the `Scores`.
    """

    def __init__(self, parts):
        self.parts = parts
        self.options = tuple(name for part in parts for name in part.options)
        told = (part.about_pictures for part in parts)
        self.about_pictures = " ".join(filter(None, told))
        first = parts[0]
        self.what = first.what
        self.sides, self.arrays = first.sides, first.arrays

    def combine(self, other, weight):
        """Returns the first scores combined with those of another network."""
        return self.parts[0].combine(other, weight)

    def pair_scores(self, records):
        """Returns the `pair_scores` of the first."""
        return self.parts[0].pair_scores(records)

    def metrics(self, **options):
        """Returns the metrics of all, each by the options that it has."""
        found = {}
        for part in self.parts:
            own = options.keys() & set(part.options)
            found |= part.metrics(**{name: options[name] for name in own})
        return found

    def with_bank(self, bank, temperature):
        """Returns the same, the first levelled by a bank of queries."""
        first, *others = self.parts
        return Together([first.with_bank(bank, temperature), *others])

    def pictures(self):
        """Returns the pictures of all."""
        return {k: v for part in self.parts for k, v in part.pictures().items()}

    def points(self, most=FEW_POINTS):
        """Returns the points of all, in one space."""
        return joined([part.points(most) for part in self.parts])


def spread(count, most):
    """Returns at most `most` of the rows 0 to `count - 1`, evenly spread."""
    picks = min(count, most)
    return (np.arange(picks) * count) // max(picks, 1)


def check_same_examples(records, others, names=_SAME):
    """Refuses to combine the scores of different images or captions.

    Args:
        records: `CaptionedImages` of a split by the one run.
        others: by the other run.
        names: of what must be the same.

    Raises:
        ValueError: naming the first image or caption that differs.
    """
    for name in names:
        both = (list(getattr(each, name)) for each in (records, others))
        for row, (one, other) in enumerate(itertools.zip_longest(*both)):
            if one != other:
                raise InputError(
                    "`--combine_with` must be a run on the same images and "
                    f"captions. Received: in split {records.split} other "
                    f"{name}, {shown(one)} and {shown(other)} in row {row}. "
                    "Evaluate both on one captions file and split."
                )
