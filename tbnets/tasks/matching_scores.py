"""What images and captions are ranked by: embeddings, or scores of pairs.

The scores of a split are a dict of `image_embeddings` float32 `[num_images,
dim]`, `text_embeddings` float32 `[num_captions, dim]` and `caption_to_image`
int64 `[num_captions]`. Inner products rank, unless there are `pair_scores`
too, an `evaluation.score_tiles.PairScores`.
"""

import numpy as np

from tbnets.errors import InputError
from tbnets.evaluation import protocols, score_tiles
from tbnets.serving import search
from tbnets.tasks.embedder import Embedder
from tbnets.tasks.pair_scorer import PairScorer
from tbnets.training import health

SERVED_BATCH = 64
"""Photos that an exported model embeds at once."""
PAIR_SCORES = "pair_scores"
EMBEDDINGS = ("image_embeddings", "text_embeddings", "caption_to_image")


class Scorer:
    """Scores splits by a network; traces its graphs once.

    Args:
        network: a built two-branch model.
        settings: the run's settings.
    """

    def __init__(self, network, settings):
        self.network = network
        self._embedder = Embedder(network, settings.image_size)
        self._pairs = None
        if network.learned_similarity:
            self._pairs = PairScorer(network, settings.evaluate_memory)

    def scores(self, examples):
        """Returns the scores of the `Examples` of a split, as above."""
        images = self._embedder.images(examples)
        texts = self._embedder.texts(examples)
        scores = {
            "image_embeddings": images,
            "text_embeddings": texts,
            "caption_to_image": examples.records.caption_to_image,
        }
        if self._pairs:
            scores[PAIR_SCORES] = self._pairs.scores(images, texts)
        return scores


def measure(scores, protocol, memory_limit_mb, text_to_text=True):
    """Returns the metrics of retrieval, whatever ranks.

    Args:
        scores: of a split, as above.
        protocol: a key of `protocols.PROTOCOLS`.
        memory_limit_mb: MiB for tiles of inner products.
        text_to_text: rank captions against captions too, where inner
            products rank.
    """
    if PAIR_SCORES in scores:
        return protocols.evaluate_scores_protocol(
            protocol, scores[PAIR_SCORES], scores["caption_to_image"]
        )
    return protocols.evaluate_protocol(
        protocol,
        **scores,
        memory_limit_mb=memory_limit_mb,
        text_to_text=text_to_text,
    )


def health_of_sides(scores):
    """Returns `embedding_health` of images and of texts."""
    sides = {"images": "image_embeddings", "texts": "text_embeddings"}
    return {
        f"{side}/{key}": value
        for side, name in sides.items()
        for key, value in health.embedding_health(scores[name]).items()
    }


def similarities_of_caption(scores, row):
    """Returns how similar each image is to one caption: `[num_images]`."""
    if PAIR_SCORES in scores:
        pairs = scores[PAIR_SCORES]
        return pairs.tile(np.arange(pairs.num_images), np.array([row]))[:, 0]
    return scores["image_embeddings"] @ scores["text_embeddings"][row]


def as_pair_scores(scores):
    """Returns the `PairScores` of a split, of embeddings minus the distance."""
    return scores.get(PAIR_SCORES) or score_tiles.embedding_scores(
        scores["image_embeddings"], scores["text_embeddings"]
    )


def served_scores(model, images, records):
    """Returns the scores of a split by an exported model.

    Args:
        model: a `served_model.ServedModel` that takes captions.
        images: what it takes of the images of the split, in order.
        records: `CaptionedImages` of the split.
    """
    scores = {
        "image_embeddings": search.embed(
            model.embed_images, images, "image", SERVED_BATCH
        ),
        "text_embeddings": search.embed(
            model.embed_text, records.captions, "caption"
        ),
        "caption_to_image": records.caption_to_image,
    }
    if model.learned_similarity:
        images, texts = scores["image_embeddings"], scores["text_embeddings"]
        scores[PAIR_SCORES] = score_tiles.PairScores(
            len(images),
            len(texts),
            lambda i, j: model.compare(images[i], texts[j]),
            lambda i, j: np.concatenate(
                [
                    model.compare(images[a : a + 1], texts[b : b + 1])[0]
                    for a, b in zip(i, j)
                ]
            ),
        )
    return scores


def combine(first, second, weight, learned=False):
    """Returns the scores of two models taken together.

    ::

        D(x, y) = (1 - weight) d(x, y) + weight d'(x, y)

    Wang et al. 2018 add two Euclidean distances between unit vectors, that of
    whole image and sentence and the mean of those of phrases and their best
    regions, as they are. So are two networks added here whose embeddings are
    compared, each with its distance in [0, 2].

    A similarity network has no distance: its logit p says how likely a match
    is, and the loss gives it whatever size it likes. Minus p shrinks with a
    better match, so it takes the place of a distance, and then both sides are
    divided by their standard deviation over 65536 random pairs of the split,
    always the same ones: `weight` is then a share of what tells pairs apart.
    The paper combines no logits.

    Args:
        first: scores of a split, as above.
        second: `PairScores` of the same images and captions by another model.
        weight: of the second, in [0, 1]; Wang et al. 2018: 0.3.
        learned: whether the second are logits.

    Returns:
        Such scores, with `pair_scores` and `caption_to_image` alone.

    Source: Wang et al. 2018, Sec. 5.6, Eq. 8.
    """
    both, units = (as_pair_scores(first), second), (1.0, 1.0)
    if PAIR_SCORES in first or learned:
        units = tuple(score_tiles.spread(one) for one in both)
    return {
        PAIR_SCORES: score_tiles.weighted_sum(*both, weight, units),
        "caption_to_image": first["caption_to_image"],
    }


def check_same_examples(records, others, split):
    """Refuses to combine the scores of different images or captions.

    Args:
        records: `CaptionedImages` of the split by the one run.
        others: by the other run.
        split: its name.

    Raises:
        ValueError: naming the first image or caption that differs.
    """
    for what, one, other in (
        ("image", records.image_ids, others.image_ids),
        ("caption", records.captions, others.captions),
        (
            "row of the image of a caption",
            records.caption_to_image.tolist(),
            others.caption_to_image.tolist(),
        ),
    ):
        if list(one) == list(other):
            continue
        if len(one) != len(other):
            found = f"{len(one)} and {len(other)} of them"
        else:
            row = [a == b for a, b in zip(one, other)].index(False)
            found = f"{one[row]!r} and {other[row]!r} in row {row}"
        raise InputError(
            "`--combine_with` must be a run on the same images and captions. "
            f"Received: in split {split} the {what} differs: {found}. Evaluate "
            "both on one captions file and split."
        )
