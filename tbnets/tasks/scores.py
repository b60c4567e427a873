"""Defines the interface of the scores of a network on a split, `Scores`."""

import itertools

import numpy as np

from tbnets.errors import InputError
from tbnets.files import shown
from tbnets.visualization.plots import joined

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
        raise self._cannot_combine()

    @property
    def first(self):
        """The scores that are compared with the scores of another network."""
        return self

    def difference(self, other):
        """Returns how much the recalls of `other` are above these recalls.

        The result is a dict from the name of a metric to (difference, low,
        high), as in `recall_differences`. Raises ValueError unless `other`
        has scores of the same kind for the same queries.
        """
        raise InputError(
            "--run_dir",
            "be two runs with ranks of the same queries",
            f"scores of {self.what} and {other.what}",
            "Evaluate each run alone.",
        )

    def with_bank(self, bank, temperature):
        """Returns these scores, normalised with a query bank.

        `bank` contains this network's scores on a second split. `temperature`
        is passed to `query_bank.normalize`.
        """
        raise InputError(
            "--query_bank",
            "be used with runs of images and captions",
            f"scores of {self.what}",
            "Leave it out.",
        )

    def pair_scores(self, records):
        """Returns a score for every pair of a whole image and a caption.

        Raises ValueError if `records` are not the scored `CaptionedImages`.

        Returns:
            (scores, learned): a `PairScores`, and whether the network learned
            the similarity. If not, `scores` are negative distances.
        """
        raise self._cannot_combine()

    def _cannot_combine(self):
        return InputError(
            "--combine_with",
            "be used with runs whose scores can be combined",
            f"scores of {self.what}",
            "Leave it out.",
        )

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


class JoinedScores(Scores):
    """Joins several `Scores` of a network on a split.

    Only the first `Scores` object is saved, monitored, and combined with the
    scores of a second network.
    """

    def __init__(self, parts):
        self.parts = parts
        self.options = tuple(name for part in parts for name in part.options)
        texts = (part.about_pictures for part in parts)
        self.about_pictures = " ".join(filter(None, texts))
        first = parts[0]
        self.what = first.what
        self.sides, self.arrays = first.sides, first.arrays

    @property
    def first(self):
        """The first `Scores`."""
        return self.parts[0]

    def combine(self, other, weight):
        """Combines the first `Scores` with the scores of another network."""
        return self.parts[0].combine(other, weight)

    def pair_scores(self, records):
        """Returns the `pair_scores` of the first `Scores`."""
        return self.parts[0].pair_scores(records)

    def metrics(self, **options):
        """Returns all metrics. Passes each option to the scores that use it."""
        metrics = {}
        for part in self.parts:
            names = options.keys() & set(part.options)
            metrics |= part.metrics(**{name: options[name] for name in names})
        return metrics

    def with_bank(self, bank, temperature):
        """Normalises the first `Scores` with a query bank."""
        first, *tail = self.parts
        return JoinedScores([first.with_bank(bank, temperature), *tail])

    def pictures(self):
        """Returns the pictures drawn by all `parts`."""
        return {k: v for part in self.parts for k, v in part.pictures().items()}

    def points(self, most=FEW_POINTS):
        """Merges the `Points` of all `parts`."""
        return joined([part.points(most) for part in self.parts])


def spread_evenly(count, most):
    """Returns at most `most` evenly spread row numbers in [0, count)."""
    picks = min(count, most)
    return (np.arange(picks) * count) // max(picks, 1)


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
                raise InputError(
                    flag,
                    "be a run on the same images and captions",
                    f"different {name} in split {records.split}: {shown(mine)} "
                    f"and {shown(theirs)} in row {row}",
                    "Evaluate both runs on one captions file and split.",
                )
