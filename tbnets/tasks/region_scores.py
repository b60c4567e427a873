"""Scores the regions of each photo for its phrases, with a network."""

import functools

import numpy as np
import tensorflow as tf
import tqdm

from tbnets.errors import InputError
from tbnets.evaluation import pair_ranks
from tbnets.identity import SAME_THING, rows_by
from tbnets.startup import raise_if_interrupted
from tbnets.tasks.embedder import Embedder
from tbnets.tasks.pair_scorer import PairScorer

REGIONS_AT_ONCE = 8192
TRUE_REGIONS = "rank_true_regions"


class RegionScorer:
    """Scores splits; traces its graphs once.

    Args:
        network: a built two-branch model on features of regions.
    """

    def __init__(self, network):
        self.network = network
        self._embedder = Embedder(network)
        features = tf.TensorSpec(network.input_shapes["images"], tf.float32)
        self._embed = tf.function(
            lambda rows: network.embed_images(rows, training=False),
            input_signature=[features],
        )
        embeddings = tf.TensorSpec((None, network.embedding_dim), tf.float32)
        self._compare = tf.function(
            network.similarities, input_signature=[embeddings, embeddings]
        )

    def scores(self, examples, progress=None):
        """Scores a split.

        Args:
            examples: `PhraseExamples`.
            progress: called with the number of photos done since the last
                call.

        Returns:
            dict of `similarities` float32 `[num_phrases, width]`, whose rows
            begin with the regions of the phrase's photo (the rest is 0),
            whether these are learned, `learned_similarity`;
            `phrase_embeddings` and, of some photos, `region_embeddings`;
            `nearest`, a function of embeddings as `nearest` below; what
            `measure` compares with: `proposals`, `truth`, `phrase_to_image`,
            `types`, `texts`; and `rank_true_regions`, a function without
            arguments that does what it says.
        """
        phrases = examples.phrases
        embeddings = self._embedder.texts(examples)
        counts = examples.features.counts[examples.image_rows]
        width = int(counts.max(initial=0))
        table = np.zeros((phrases.num_phrases, width), np.float32)
        owned = rows_by(phrases.phrase_to_image, len(counts))
        some = None
        for images in _chunks(counts, REGIONS_AT_ONCE):
            regions, starts = self._regions(examples, images, counts)
            some = regions if some is None else some
            for image, start in zip(images, starts):
                end, rows = start + counts[image], owned[image]
                if not len(rows) or start == end:
                    continue
                found = self._compare(regions[start:end], embeddings[rows])
                table[rows, : counts[image]] = found.numpy().T
            raise_if_interrupted()
            if progress is not None:
                progress(len(images))
        if some is None:
            some = np.zeros((0, self.network.embedding_dim), np.float32)
        return {
            "similarities": table,
            "learned_similarity": self.network.learned_similarity,
            "phrase_embeddings": embeddings,
            "region_embeddings": some,
            "nearest": functools.partial(self.nearest, examples),
            TRUE_REGIONS: functools.partial(
                self.rank_true_regions, examples, embeddings
            ),
            **_compared_with(phrases, examples.proposals),
        }

    def nearest(self, examples, text_embeddings):
        """Finds how similar the best region of every photo is to phrases.

        Args:
            examples: `PhraseExamples`.
            text_embeddings: float32 `[n, embedding_dim]`.

        Returns:
            float32 `[num_images, n]`, -infinity for a photo without regions.
        """
        counts = examples.features.counts[examples.image_rows]
        shape = len(counts), len(text_embeddings)
        table = np.full(shape, -np.inf, np.float32)
        for images in _chunks(counts, REGIONS_AT_ONCE):
            regions, starts = self._regions(examples, images, counts)
            for image, start in zip(images, starts):
                end = start + counts[image]
                if start < end:
                    found = self._compare(regions[start:end], text_embeddings)
                    table[image] = found.numpy().max(axis=0)
        return table

    def rank_true_regions(self, examples, embeddings):
        """Ranks all phrases of a split for each true region, and back.

        The region that overlaps the true box most stands for it; things
        without one that overlaps by half are left out.

        Args:
            examples: `PhraseExamples`.
            embeddings: float32 `[num_phrases, dim]`, of its phrases.

        Returns:
            The metrics of `pair_ranks.evaluate_region_phrase_ranking`.
        """
        phrases, roles = examples.phrases, examples.roles
        chains, texts = phrases.phrase_to_chain, phrases.phrase_to_text
        _, first = np.unique(chains, return_index=True)
        is_there = roles.best_iou[first] >= SAME_THING
        first = first[is_there]
        rows = roles.first_rows[first] + roles.best[first]
        regions = [
            self._embed(examples.features.take_regions(part)).numpy()
            for part in np.split(
                rows, range(REGIONS_AT_ONCE, len(rows), REGIONS_AT_ONCE)
            )
        ]
        _, said = np.unique(texts, return_index=True)
        sides = np.concatenate(regions), embeddings[said]
        if self.network.learned_similarity:
            tile = PairScorer(self.network).scores(*sides).tile
            scores = tile(*(np.arange(len(side)) for side in sides))
        else:
            scores = pair_ranks.EmbeddingScores(*sides)
        places = np.cumsum(is_there) - 1
        pairs = np.stack([places[chains], texts], axis=1)[is_there[chains]]
        return pair_ranks.evaluate_region_phrase_ranking(scores, pairs)

    def _regions(self, examples, images, counts):
        """Returns embeddings of the regions of photos, and their starts."""
        firsts = examples.first_regions[images]
        rows = [
            np.arange(first, first + counts[image])
            for first, image in zip(firsts, images)
        ]
        features = examples.features.take_regions(np.concatenate(rows))
        ends = np.cumsum(counts[images])
        return self._embed(features).numpy(), ends - counts[images]


def served_scores(model, phrases, store, rows, photos=None):
    """Scores a split by an exported model.

    Args:
        model: a `served_localizer.ServedLocalizer` that takes captions.
        phrases: `PhraseRegions` of the split, in pixels of its photos.
        store: `FeatureStore` of the regions, with
        rows: int `[num_images]`, the row of each photo.
        photos: paths of the photos, for a model that begins with them; None
            for one that takes features.

    Returns:
        dict, as that of `RegionScorer.scores` without embeddings.
    """
    counts = store.counts[rows]
    width = int(counts.max(initial=0))
    table = np.zeros((phrases.num_phrases, width), np.float32)
    owned = rows_by(phrases.phrase_to_image, len(counts))
    proposals = []
    for image, row in enumerate(tqdm.tqdm(rows, "localizing", disable=None)):
        boxes = store.boxes(row)[0]
        proposals.append(boxes)
        said = [phrases.phrases[phrase] for phrase in owned[image]]
        if not said or not len(boxes):
            continue
        if photos is None:
            found = model.similarity(said, store.regions(row)[0])
        else:
            found = model.localize(said, photos[image], boxes)
        table[owned[image], : len(boxes)] = found
    return {"similarities": table, **_compared_with(phrases, proposals)}


def _compared_with(phrases, proposals):
    """Returns what scores are measured by."""
    return {
        "proposals": proposals,
        "truth": phrases.boxes,
        "phrase_to_image": phrases.phrase_to_image,
        "types": phrases.type_masks(),
        "texts": phrases.phrase_to_text,
    }


def combine(first, second, weight):
    """Returns the scores of two networks taken together.

    Args:
        first: scores of a split, as above.
        second: those of another network, of the same phrases and proposals.
        weight: of the second, in [0, 1].

    Returns:
        Such scores; similarities are minus the weighted sum of distances,
        which `matching_scores.combine` describes.

    Raises:
        ValueError: phrases or proposals differ.

    Source: Wang et al. 2018, Sec. 5.6, Eq. 8, which combines models of whole
        images and sentences.
    """
    same = np.array_equal(first["truth"], second["truth"]) and all(
        map(np.array_equal, first["proposals"], second["proposals"])
    )
    if not same:
        raise InputError(
            "`--combine_with` must be a run on the same phrases and proposals. "
            f"Received: {len(first['truth'])} and {len(second['truth'])} "
            "phrases, with other boxes. Evaluate both on one --phrases, "
            "--captions and proposals."
        )
    counts = np.array([len(one) for one in first["proposals"]], np.int64)
    width = first["similarities"].shape[1]
    is_region = np.arange(width) < counts[first["phrase_to_image"]][:, None]
    both = [_as_distances(one) for one in (first, second)]
    if first["learned_similarity"] or second["learned_similarity"]:
        spreads = [float(one[is_region].std()) or 1.0 for one in both]
        both = [one / spread for one, spread in zip(both, spreads)]
    total = (1 - weight) * both[0] + weight * both[1]
    combined = {**first, "similarities": -total, "learned_similarity": True}
    combined.pop(TRUE_REGIONS, None)
    return combined


def _as_distances(scores):
    """Returns a table that shrinks with a better match."""
    table = scores["similarities"]
    if scores["learned_similarity"]:
        return -table
    return np.sqrt(np.maximum(2 - 2 * table, 0))


def _chunks(counts, most):
    """Yields rows of photos that have so many regions together, or one."""
    start = 0
    while start < len(counts):
        total = np.cumsum(counts[start:])
        stop = start + max(1, int(np.searchsorted(total, most, "right")))
        yield np.arange(start, stop)
        start = stop
