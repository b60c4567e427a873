"""The base class of losses that rank the candidates of each anchor."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Array, Integers, checked_number
from tbnets.errors import check_choice
from tbnets.losses import miners, tiles
from tbnets.losses.distances import similarities
from tbnets.losses.positives import Matches, View, batch_views, own_anchors
from tbnets.losses.presets import CROSS_TERMS, TERMS
from tbnets.losses.replicas import gather, summed
from tbnets.startup import no_accelerator

ID_NAMES = "image_ids", "caption_image_ids", "text_ids"


class LossOutput(NamedTuple):
    """The result of a ranking loss; each value is a float32 scalar.

    Attributes:
        total: Weighted sum of the terms, the value to minimise.
        terms: Dict from each term with a weight above 0 to its unweighted loss.
        active_fraction: Dict from each of these terms to the fraction of its
            triplets with a loss above 0. For a loss without triplets, it is the
            fraction of anchors whose closest candidate is not a positive; ties
            count as errors.
    """

    total: tf.Tensor
    terms: dict[str, tf.Tensor]
    active_fraction: dict[str, tf.Tensor]


class RankingLoss:
    """A weighted sum of terms, each of which ranks candidates for anchors.

    In the four terms, images rank texts, texts rank images, texts rank texts,
    and images rank images. A subclass is a dataclass whose fields are the
    arguments of the loss, including `term_weights`, and defines
    `anchor_losses`. A term is the mean loss over the anchors that have a
    positive and a negative, and 0 if there is no such anchor. The base class
    gathers embeddings and ids from all replicas, computes scores and masks, and
    divides large batches into tiles.

    Attributes:
        term_weights: dict from every term in `TERMS` to its weight. A missing
            term has weight 0. The default, None, means weight 1 for
            `image_to_text` and `text_to_image`.
    """

    term_weights: Mapping[str, float] | None

    def __post_init__(self):
        if self.term_weights is None:
            self.term_weights = dict.fromkeys(CROSS_TERMS, 1.0)
        self._check_terms()

    @property
    def kept_negatives(self) -> int | None:
        """Maximum number of negatives kept per anchor; None if all are kept."""
        return None

    def scores(self, anchors: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        """Returns the scores of all pairs, float32.

        The shape is `[num_anchors, num_candidates]`. Matching pairs should have
        larger scores. The default is the inner product. `image_to_text` and
        `text_to_image` share their scores.
        """
        return similarities(anchors, candidates)

    def anchor_losses(
        self, scores: tf.Tensor, positive: tf.Tensor, negative: tf.Tensor
    ) -> tf.Tensor:
        """Computes the losses of the anchors of one term.

        Args:
            scores: float32 `[num_anchors, num_candidates]`, the result of
                `scores`.
            positive: bool mask of the same shape. Each anchor has a positive.
            negative: bool mask of the same shape. Each anchor has a negative.
                The anchor itself is neither a positive nor a negative.

        Returns:
            The losses, float32 `[num_anchors]`.
        """
        raise NotImplementedError

    def sums(self, views: dict[str, View]) -> dict[str, tf.Tensor]:
        """Adds up the losses, counts and errors of each term, float32 `[3]`."""
        scores: dict[str, tf.Tensor] = {}
        for term, view in views.items():
            scores[term] = self._shared_scores(view, views, scores)
        return {t: self._sums(scores[t], view) for t, view in views.items()}

    def _sums(self, scores, view):
        positive, negative = (
            tf.convert_to_tensor(mask)
            for mask in (view.positive, ~view.excluded)
        )
        counts = tf.reduce_any(positive, 1) & tf.reduce_any(negative, 1)
        best, rival = (
            tf.reduce_max(tf.where(mask, scores, float("-inf")), axis=1)
            for mask in (positive, negative)
        )
        # The losses of the other anchors are dropped, but must be finite, or
        # the gradient is NaN. Therefore, all candidates become their positives
        # and negatives.
        is_dropped = ~counts[:, None]
        losses = self.anchor_losses(
            scores, positive | is_dropped, negative | is_dropped
        )
        losses = tf.where(counts, losses, 0.0)
        if view.weights is not None:
            losses *= view.weights
        parts = losses, counts, counts & ~(best > rival)
        return tf.stack(
            [tf.reduce_sum(tf.cast(part, tf.float32)) for part in parts]
        )

    def _shared_scores(self, view, views, known):
        """Returns a view's scores; transposes `known` scores if possible."""
        for term, scores in known.items():
            sides = views[term].candidates, views[term].anchors
            if view.anchors is sides[0] and view.candidates is sides[1]:
                return tf.transpose(scores)
        return self.scores(view.anchors, view.candidates)

    def reduce(self, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the loss and the active fraction of a term from its `sums`.

        `sums` are added over all replicas and tiles before this call.
        """
        total, count, errors = tf.unstack(sums, num=3)
        count = tf.stop_gradient(count)
        share = tf.stop_gradient(tf.math.divide_no_nan(errors, count))
        return tf.math.divide_no_nan(total, count), share

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments of the loss."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds a loss from its config."""
        return cls(**config)

    def _check_terms(self):
        for term, weight in self.term_weights.items():
            check_choice("term_weights", term, TERMS)
            checked_number(f"term_weights[{term!r}]", weight, 0)
        self.term_weights = {
            term: float(self.term_weights.get(term, 0.0)) for term in TERMS
        }

    def __call__(
        self,
        image_embeddings: Array,
        text_embeddings: Array,
        image_ids: Integers | None = None,
        caption_image_ids: Integers | None = None,
        text_ids: Integers | None = None,
        *,
        idle: tuple[Iterable[str], Any] = ((), False),
        largest: tuple[int, int] | None = None,
    ) -> LossOutput:
        """Computes the loss of one batch; compares a large batch in tiles.

        `loss(embeddings, labels)` compares one set of embeddings: rows with
        equal labels are positives of each other, and all other rows are
        negatives. The only term is `within_view`, with weight 1.

        Under a `tf.distribute` strategy, each replica passes its own rows and
        receives the loss of the whole batch.

        Args:
            image_embeddings: Float `[num_images, embedding_dim]`, unit vectors.
            text_embeddings: Float `[num_captions, embedding_dim]`, unit
                vectors.
            image_ids: Integer `[num_images]`.
            caption_image_ids: Integer `[num_captions]`, ids of the captions'
                images.
            text_ids: Optional integer `[num_captions]`, one id per distinct
                text.
            idle: (terms, is_idle). If the bool scalar `is_idle` is True, these
                terms are 0 and are not computed.
            largest: Maximum numbers of images and captions in a batch. If None,
                a batch of unknown size is not compared in tiles. On an
                accelerator, batches are padded to this size, so that XLA
                compiles the loss only once.
        """
        if image_ids is None and caption_image_ids is None:
            [rows] = miners.embeddings_of_loss(embeddings=image_embeddings)
            return self._within_view(rows, labels=text_embeddings)
        images, texts = miners.embeddings_of_loss(
            image_embeddings=image_embeddings, text_embeddings=text_embeddings
        )
        ids = image_ids, caption_image_ids, text_ids
        sides = (
            ("image_embeddings", images),
            *[("text_embeddings", texts)] * 2,
        )
        for name, values, side in zip(ID_NAMES, ids, sides):
            if values is not None or name != "text_ids":
                miners.check_as_many(name, values, *side)
        images, texts, *ids = gather(images, texts, *ids)
        counts = None
        if largest and self._is_compiled():
            counts = tf.shape(images)[0], tf.shape(texts)[0]
            sizes = largest[0], largest[1], largest[0], largest[1], largest[1]
            images, texts, *ids = map(_padded, (images, texts, *ids), sizes)
        matches = Matches(*ids, counts)
        sizes = largest or (images.shape[0], texts.shape[0])

        def term_sums(terms):
            if tiles.is_large(*sizes):
                return self.sums_in_tiles(terms, images, texts, matches)
            views = batch_views(images, texts, matches, terms)
            return self.sums({t: own_anchors(views[t]) for t in terms})

        return self._output(term_sums, TERMS, idle)

    def _within_view(self, rows, labels):
        labels = miners.checked_row("labels", labels)
        miners.check_as_many("labels", labels, "embeddings", rows)
        alone, term = copy.copy(self), "text_to_text"
        alone.term_weights = {**dict.fromkeys(TERMS, 0.0), term: 1.0}
        total, *values = alone(rows[:0], rows, labels[:0], labels)
        return LossOutput(total, *({"within_view": v[term]} for v in values))

    def _is_compiled(self):
        """Returns whether XLA compiles `sums`: in graphs on accelerators."""
        return not (tf.executing_eagerly() or no_accelerator())

    def sums_in_tiles(
        self,
        terms: Sequence[str],
        images: tf.Tensor,
        texts: tf.Tensor,
        matches: Matches,
    ) -> dict[str, tf.Tensor]:
        """Computes `sums` without whole similarity matrices."""
        sums = {}
        for term in terms:
            # One term after another, so that one tile exists at a time.
            with tf.control_dependencies([*sums.values()]):
                sides = tf.identity(images), tf.identity(texts)
                sums[term] = tiles.sums(self, term, *sides, matches)
        return sums

    def _output(self, term_sums, terms, idle):
        """Computes the loss; `term_sums(terms)` returns {term: sums}."""
        terms = [term for term in terms if self.term_weights[term]]
        scheduled, is_idle = idle
        always = [term for term in terms if term not in scheduled]

        def sums(computed):
            computed_sums = term_sums(computed) if computed else {}
            return [computed_sums.get(term, tf.zeros([3])) for term in terms]

        def rows():
            if len(always) == len(terms):
                return sums(terms)
            return tf.cond(is_idle, lambda: sums(always), lambda: sums(terms))

        if self._is_compiled():
            rows = tf.function(rows, jit_compile=True, autograph=False)
        total, losses, active = tf.zeros([]), {}, {}
        for term, row in zip(terms, summed(rows())):
            losses[term], active[term] = self.reduce(row)
            total += self.term_weights[term] * losses[term]
        return LossOutput(total, losses, active)


def rank(loss, views, idle=((), False)):
    """Computes a loss from the anchors and candidates of each term.

    Under a strategy, every replica passes the views of the whole batch, and
    compares some of the anchors with all candidates.

    Args:
        loss: a `RankingLoss`.
        views: dict from term to `View`. Terms with weight 0 are skipped.
        idle: as in the call of a loss.
    """

    def term_sums(terms):
        return loss.sums({term: own_anchors(views[term]) for term in terms})

    return loss._output(term_sums, views, idle)


def _padded(rows, size):
    if rows is None:
        return None
    rows = tf.convert_to_tensor(rows)
    shape = rows.shape[1:]
    paddings = [[0, size - tf.shape(rows)[0]], *[[0, 0]] * len(shape)]
    return tf.ensure_shape(tf.pad(rows, paddings), [size, *shape])
