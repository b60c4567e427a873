"""Finds the region that each noun phrase of a split names."""

import numpy as np
import tensorflow as tf

from tbnets.data.localization.roles import proposal_roles
from tbnets.data.phrase_pairs import CHOICE, CONFIDENCE
from tbnets.evaluation import pair_ranks
from tbnets.evaluation.choices import DEFAULT, MOST_SIMILAR, answers
from tbnets.identity import SAME_THING
from tbnets.progress import progress_bar
from tbnets.text.packed_trees import TreeRows
from tbnets.training.embedder import Embedder

PHOTOS_AT_ONCE = 128
REGIONS_AT_ONCE = 8192
PHRASES_AT_ONCE = 1024


class Matcher:
    """Gives phrases candidates of their photos; traces its graphs once.

    Args:
        network: a built `HMLSTM`.
        image_size: side of decoded photos in pixels, for networks that start
            at pixels.

    Source: Niu et al. 2017, Sec. 3.3. Departures: none.
    """

    def __init__(self, network, image_size=None):
        self.network = network
        self._embedder = Embedder(network, image_size)
        specs = [
            tf.TensorSpec((None, *TreeRows.shape), TreeRows.dtype),
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((None, network.region_dim), tf.float32),
            tf.TensorSpec((None, network.embedding_dim), tf.float32),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ]
        self._compare = tf.function(self._similarities, input_signature=specs)

    def match(self, examples, choice=DEFAULT):
        """Finds the candidate of each phrase.

        Args:
            examples: `PairExamples`.
            choice: `evaluation.choices.Choice` of a candidate. Training takes
                the most similar one, as the paper does.

        Returns:
            dict of `CHOICE` int16 `[num_phrases]`, which candidate of its
            photo each phrase names, and `CONFIDENCE` float32 `[num_phrases]`,
            how similar they are.
        """
        images = self._embedder.images(examples)
        count = len(examples.phrases.captions)
        choices = np.zeros(count, np.int16)
        confidences = np.zeros(count, np.float32)
        captions = examples.records.caption_rows()
        with progress_bar(len(images), "regions of phrases", "photo") as bar:
            for start in range(0, len(images), PHOTOS_AT_ONCE):
                rows = np.arange(len(images))[start : start + PHOTOS_AT_ONCE]
                own = np.concatenate([captions[row] for row in rows])
                phrases = examples.phrases.rows_of(own)
                if len(phrases):
                    found = self._of_photos(examples, rows, own, images)
                    best = _chosen(examples, phrases, found, choice)
                    choices[phrases] = best
                    confidences[phrases] = found[np.arange(len(best)), best]
                bar.update(len(rows))
        return {CHOICE: choices, CONFIDENCE: confidences}

    def rank_true_regions(self, examples, links):
        """Ranks all phrases of a split for each true region, and back.

        The candidate that overlaps a known box most stands for the thing in
        it; things without one that overlaps by half are left out. Phrases of
        the same words are one.

        Args:
            examples: `PairExamples`.
            links: its `evaluation.correspondences.Links`.

        Returns:
            The metrics of `pair_ranks.evaluate_region_phrase_ranking`.
        """
        photos = range(examples.records.num_images)
        candidates = [examples.regions.candidates(photo) for photo in photos]
        roles = proposal_roles(links.boxes, links.images, candidates)
        kept = np.flatnonzero(roles.best_iou >= SAME_THING)
        if not len(kept):
            return pair_ranks.NO_QUERIES
        texts = examples.phrases.texts[links.phrases[kept]]
        (first, things), (said, spoken) = (
            np.unique(each, return_index=True, return_inverse=True)[1:]
            for each in (links.things[kept], texts)
        )
        rows = kept[first]
        best = links.images[rows], roles.best[rows]
        phrases = self.embed_phrases(examples, links.phrases[kept[said]])
        regions = self._embed_candidates(examples, *best)
        scores = pair_ranks.EmbeddingScores(regions, phrases)
        pairs = np.unique(np.stack([things, spoken], axis=1), axis=0)
        return pair_ranks.evaluate_region_phrase_ranking(scores, pairs)

    def _embed_candidates(self, examples, images, numbers):
        """Returns embeddings `[n, dim]` of candidates of photos."""
        found = self._embedder.images(examples)[images]
        rows = np.flatnonzero(numbers < examples.regions.counts[images])
        for start in range(0, len(rows), REGIONS_AT_ONCE):
            part = rows[start : start + REGIONS_AT_ONCE]
            taken = examples.regions.take(images[part], numbers[part])
            found[part] = self.network.embed_regions(taken)
        return found

    def embed_phrases(self, examples, rows):
        """Returns embeddings float32 `[n, dim]` of phrases of a split.

        Args:
            examples: `PairExamples`.
            rows: int `[n]`, which of its phrases.
        """
        found = np.zeros((len(rows), self.network.embedding_dim), np.float32)
        for start in range(0, len(rows), PHRASES_AT_ONCE):
            part = slice(start, start + PHRASES_AT_ONCE)
            captions = examples.phrases.captions[rows[part]]
            lengths = examples.texts.lengths[captions]
            nodes = np.cumsum(lengths) - lengths
            nodes += examples.phrases.nodes[rows[part]]
            nodes, trees = nodes.astype("int32"), examples.texts.batch(captions)
            _, found[part] = self.network.embed_nodes(trees, nodes)
        return found

    def _of_photos(self, examples, rows, captions, images):
        """Returns similarities of the phrases and candidates of photos.

        float32 `[p, k]`; what a photo has no candidate for is -infinity.
        """
        regions, texts = examples.regions, examples.texts
        places, numbers = regions.all_of(rows)
        counts = regions.counts[rows]
        lengths = texts.lengths[captions]
        phrases, _, nodes = examples.phrases.in_batch(captions, lengths)
        owners = examples.phrase_images[phrases] - rows[0]
        # The candidates of each photo: rows of its regions, then its own.
        firsts = np.cumsum(counts) - counts
        columns = np.arange(int(counts.max(initial=0)) + 1)
        table = firsts[:, None] + columns
        photo = len(places) + np.arange(len(rows))[:, None]
        table = np.where(columns < counts[:, None], table, photo)
        said = texts.batch(captions), nodes.astype(np.int32)
        seen = regions.take(rows[places], numbers), images[rows]
        own = [each[owners].astype(np.int32) for each in (table, counts)]
        return self._compare(*said, *seen, *own).numpy()

    def _similarities(self, captions, nodes, regions, images, table, counts):
        """Returns how similar each phrase is to its candidates, `[p, k]`."""
        _, phrases = self.network.embed_nodes(captions, nodes)
        seen = tf.concat([self.network.embed_regions(regions), images], axis=0)
        found = tf.einsum("pd,pkd->pk", phrases, tf.gather(seen, table))
        columns = tf.range(tf.shape(table)[1])
        is_candidate = columns <= counts[:, None]
        return tf.where(is_candidate, found, float("-inf"))


def _chosen(examples, phrases, similarities, choice):
    """Returns which candidate each phrase is given, int `[p]`.

    Args:
        examples: `PairExamples`.
        phrases: int `[p]`, rows of phrases.
        similarities: `[p, k]`, -infinity beyond the candidates of the photo.
        choice: `Choice`.
    """
    if choice.name == MOST_SIMILAR:
        return similarities.argmax(axis=1)
    best = np.zeros(len(phrases), np.int64)
    owners = examples.phrase_images[phrases]
    for photo in np.unique(owners):
        own, boxes_there = owners == photo, examples.regions.candidates(photo)
        found = similarities[own, : len(boxes_there)]
        best[own] = answers(found, boxes_there, choice)[0].argmax(axis=1)
    return best
