"""What images and captions are ranked by: embeddings, or scores of pairs."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import numpy as np

from tbnets.data.captions import CaptionedImages
from tbnets.evaluation import protocols, query_bank, score_tiles
from tbnets.tasks.matching import views
from tbnets.tasks.scores import FEW_POINTS, Scores, check_same_examples
from tbnets.tasks.task import Evaluator
from tbnets.training.embedder import Embedder
from tbnets.training.pair_scorer import PairScorer


@dataclasses.dataclass(frozen=True, eq=False)
class RetrievalScores(Scores):
    """Embeddings of the images and captions of a split.

    Inner products rank, unless there are scores of pairs.

    Args:
        image_embeddings: float32 `[num_images, dim]`.
        text_embeddings: float32 `[num_captions, dim]`.
        records: `CaptionedImages` of the split.
        pairs: `PairScores`, where a network learns to compare, two are taken
            together, or there is a bank.
        memory_limit_mb: MiB for tiles of inner products.
        photos: folder of the photos; None where they are not at hand.
        compare: function (image embeddings, text embeddings) -> `PairScores`.
        in_distances: whether scores of pairs are minus distances.
        bank_temperature: that of `query_bank.level`, of whose bank `pairs` then
            holds images and texts too, behind those of the split; None without.
    """

    what = "images and captions"
    options = ("protocol", "text_to_text")
    about_pictures = views.WHAT_IS_SHOWN

    image_embeddings: np.ndarray
    text_embeddings: np.ndarray
    records: CaptionedImages
    pairs: score_tiles.PairScores | None = None
    memory_limit_mb: float = 512
    photos: pathlib.Path | None = None
    compare: Callable = score_tiles.embedding_scores
    in_distances: bool = True
    bank_temperature: float | None = None

    @property
    def sides(self):
        """The embeddings of both sides."""
        return {"images": self.image_embeddings, "texts": self.text_embeddings}

    @property
    def arrays(self):
        """The embeddings of both sides, and `caption_to_image`."""
        if self.pairs:
            return {}
        return {
            "image_embeddings": self.image_embeddings,
            "text_embeddings": self.text_embeddings,
            "caption_to_image": self.records.caption_to_image,
        }

    def metrics(self, protocol="full", text_to_text=True):
        """Returns the metrics of retrieval, whatever ranks.

        Args:
            protocol: a key of `protocols.PROTOCOLS`.
            text_to_text: rank captions against captions too, where inner
                products rank.
        """
        if self.pairs:
            pairs, temperature = self.pairs, self.bank_temperature
            if temperature is not None:
                pairs = query_bank.level(pairs, *self._counts, temperature)
            rows = self.records.caption_to_image
            return protocols.evaluate_scores_protocol(protocol, pairs, rows)
        return protocols.evaluate_protocol(
            protocol,
            **self.arrays,
            memory_limit_mb=self.memory_limit_mb,
            text_to_text=text_to_text,
        )

    @property
    def _as_pairs(self):
        """The `PairScores` of the split, of embeddings minus the distance."""
        return self.pairs or self.compare(*self.sides.values())

    def with_bank(self, bank, temperature):
        """Returns the scores of the split as a bank of queries levels them.

        Args:
            bank: `RetrievalScores` of the bank by the same network.
            temperature: that of `query_bank.level`.
        """
        sides = zip(self.sides.values(), bank.sides.values())
        pairs = self.compare(*map(np.concatenate, sides))
        return dataclasses.replace(
            self, pairs=pairs, bank_temperature=temperature
        )

    @property
    def _counts(self):
        """How many images and captions the split has."""
        return self.records.num_images, self.records.num_captions

    def pair_scores(self, records):
        """Returns the `PairScores` of the split; whether they are logits."""
        check_same_examples(records, self.records)
        return self._as_pairs, not self.in_distances

    def combine(self, other, weight):
        """Returns the scores of two models taken together.

        ::

            D(x, y) = (1 - weight) d(x, y) + weight d'(x, y)

        Wang et al. 2018 add two Euclidean distances between unit vectors, that
        of whole image and sentence and the mean of those of phrases and their
        best regions, as they are. So are two networks added here whose
        embeddings are compared, each with its distance in [0, 2].

        A similarity network has no distance: its logit p says how likely a
        match is, and the loss gives it whatever size it likes. Minus p shrinks
        with a better match, so it takes the place of a distance, and then both
        sides are divided by their standard deviation over 65536 random pairs
        of the split, always the same ones: `weight` is then a share of what
        tells pairs apart. The paper combines no logits. A sum is no distance
        either: a third model is added in the same way, so that it counts a
        little otherwise than one that was added before.

        Args:
            other: scores of the same images and captions by another model.
            weight: of the other, in [0, 1]; Wang et al. 2018: 0.3.

        Source: Wang et al. 2018, Sec. 5.6, Eq. 8.
        """
        second, learned = other.pair_scores(self.records)
        both, units = (self._as_pairs, second), (1.0, 1.0)
        if learned or not self.in_distances:
            own = [np.arange(count) for count in self._counts]
            units = [score_tiles.spread(one.subset(*own)) for one in both]
        pairs = score_tiles.weighted_sum(*both, weight, units)
        return dataclasses.replace(self, pairs=pairs, in_distances=False)

    def of_caption(self, row):
        """Returns how similar each image is to one caption: `[num_images]`."""
        if self.pairs:
            images = np.arange(self.pairs.num_images)
            return self.pairs.tile(images, np.array([row]))[:, 0]
        return self.image_embeddings @ self.text_embeddings[row]

    def pictures(self):
        """Returns a few captions with their best images, drawn.

        Without photos, as with features alone, there are none.
        """
        return views.draw_answered_captions(self) if self.photos else {}

    def points(self, most=FEW_POINTS):
        """Returns images and captions of the split as points of one space.

        Where a network learns to compare, both sides share no space.
        """
        if self.pairs:
            return None
        return views.image_and_caption_points(self, most)


class Retrieval(Evaluator):
    """Embeds the images and captions of a split; traces its graphs once.

    Args:
        data: the run's `MatchingData`.
    """

    best_metric = "recall_sum"

    def __init__(self, data):
        self._data = data
        self._memory = data.settings.run.evaluate_memory
        self._graphs = functools.lru_cache(maxsize=1)(self._trace)

    def _trace(self, network):
        """Returns the `Embedder` and the `PairScorer` of a network."""
        judge = None
        if network.learned_similarity:
            judge = PairScorer(network, self._memory)
        return Embedder(network, self._data.image_size), judge

    def scores(self, network, examples):
        """Returns the `RetrievalScores` of some `Examples`."""
        embedder, judge = self._graphs(network)
        images, texts = embedder.images(examples), embedder.texts(examples)
        records, pairs, learned = examples.records, None, {}
        if judge:
            pairs = judge.scores(images, texts)
            learned = {"compare": judge.scores, "in_distances": False}
        photos = self._data.split(records.split).photo_folder
        given = images, texts, records, pairs, self._memory, photos
        return RetrievalScores(*given, **learned)
