"""Ranks images and captions by embeddings or by scores of pairs."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np

from tbnets.data.captions import CaptionedImages
from tbnets.evaluation import retrieval, score_tiles
from tbnets.evaluation.ranks import group_pairs
from tbnets.serving import embedding_cache, search
from tbnets.tasks.scores import (
    FEW_POINTS,
    PhraseScores,
    Scores,
    check_same_examples,
)
from tbnets.visualization import montage
from tbnets.visualization.plots import CAPTION, IMAGE, Points, joined

NUM_CAPTIONS = 5
NUM_ANSWERS = 5
NUM_QUERIES = 2
WHAT_IS_A_HIT = (
    "a caption of the image contains the words of the sentence in their order"
)
WHAT_IS_SHOWN = (
    "A sentence and the images ranked first for it. Green: the image that it "
    "describes. Red: a different image."
)
THUMBNAIL = 64


def first_captions(records):
    """Returns the first caption of each image, or "" if it has no caption."""
    groups = records.caption_rows()
    return [records.captions[rows[0]] if len(rows) else "" for rows in groups]


def example_captions(records):
    """Returns the query captions, from at most `NUM_QUERIES` images."""
    captions = list(dict.fromkeys(filter(None, first_captions(records))))
    return [
        captions[row]
        for row in montage.spread_evenly(len(captions), NUM_QUERIES)
    ]


def draw_answered_captions(scores):
    """Draws a few captions, each with its highest-ranked images.

    The caption's image has a green frame, and other images have a red frame. If
    the caption's image ranks too low, it is drawn separately with its rank.
    Returns a dict from "1", "2" and so on to uint8 arrays `[height, width, 3]`.
    """
    records, pictures = scores.records, {}
    rows = montage.spread_evenly(records.num_captions, NUM_CAPTIONS)
    for number, row in enumerate(rows, start=1):
        hit = records.caption_to_image[row]
        is_hit = records.image_groups == records.image_groups[hit]
        similarities = scores.of_caption(row)
        order = np.argsort(-similarities, kind="stable")
        tiles = [
            montage.Tile(records.file_name(image), f"{place}", is_hit[image])
            for place, image in enumerate(order[:NUM_ANSWERS], start=1)
        ]
        rank = 1 + int(np.flatnonzero(is_hit[order])[0])
        if rank > NUM_ANSWERS:
            best = order[rank - 1]
            label, name = f"{rank} of {len(order)}", records.file_name(best)
            tiles.append(montage.Tile(name, label, True, apart=True))
        card = montage.draw_card(records.captions[row], tiles, scores.photos)
        pictures[str(number)] = np.asarray(card)
    return pictures


def shown_captions(records, most):
    """Returns the indices of evenly spread images and of their captions.

    `most` is a pair: the maximum numbers of images, and of captions per image.
    """
    images = montage.spread_evenly(records.num_images, most[0])
    groups = records.caption_rows()
    captions = [row for i in images for row in groups[i][: most[1]]]
    return images, np.array(captions, np.int64)


def image_and_caption_points(scores, most):
    """Returns images and captions as `Points` in a shared space."""
    records, folder = scores.records, scores.photos
    images, captions = shown_captions(records, most)
    firsts, text = first_captions(records), records.captions
    photos, sentences = scores.image_embeddings, scores.text_embeddings
    owners = records.caption_to_image[captions]
    sides = (
        (IMAGE, photos[images], [firsts[row] for row in images], images),
        (CAPTION, sentences[captions], [text[row] for row in captions], owners),
    )
    return joined([points_of(*side, records, folder) for side in sides])


def points_of(kind, vectors, texts, images, records, folder):
    """Returns `Points` of one `kind`, or None if `vectors` is empty.

    If `kind` is IMAGE, the thumbnails show photos, otherwise the `texts`. If
    `folder` is None, there are no thumbnails. `images`, int `[n]`, contains the
    row in `records` of each point's image.
    """
    names, thumbnails = [records.file_name(image) for image in images], None
    if not names:
        return None
    if folder is not None:
        drawn = [
            montage.draw_photo(folder, name, THUMBNAIL)
            if kind == IMAGE
            else montage.draw_words(text, THUMBNAIL)
            for name, text in zip(names, texts)
        ]
        thumbnails = np.stack([np.asarray(image) for image in drawn])
    columns = {"text": texts, "kind": [kind] * len(names), "image": names}
    return Points(vectors, columns, thumbnails)


def show_answers(model, queries, records, embeddings, photos, path):
    """Ranks images for sentences, and draws them if there are photos.

    `embeddings`, float32 `[num_images, embedding_dim]`, belong to the images in
    `records`. `photos` is their folder or None, and `path` is the PNG file to
    write. Returns tables of the ranked images, as text.
    """
    hits = search.find_hits(queries, records.captions, records.caption_to_image)
    names = records.names
    lines = [f"{a}  {b}" for a, b in zip(names, first_captions(records))]
    right = [
        hit and {i: f"{names[i]}  {caption}" for i, caption in hit.items()}
        for hit in hits
    ]
    ranked = search.rank(model, queries, (), embeddings, NUM_ANSWERS)
    titles = search.query_titles(queries, search.notes_on(model, queries))
    text = search.format_tables(titles, lines, ranked, right)
    if any(hit is not None for hit in hits):
        text += f"\n\nhit: {WHAT_IS_A_HIT}."
    if photos is not None:
        legend = f"Green: {WHAT_IS_A_HIT}. Red: no caption does."
        drawn = titles, names, ranked, photos, hits, legend
        montage.draw_montage(*drawn).save(path)
        text += f"\n\nanswers drawn    {path}"
    return text


@dataclasses.dataclass(frozen=True, eq=False)
class RetrievalScores(Scores):
    """The embeddings of a split's images and captions, or scores of pairs.

    Args:
        image_embeddings: float32 `[num_images, dim]`.
        text_embeddings: float32 `[num_captions, dim]`.
        records: `CaptionedImages` of the split.
        pairs: `PairScores` from a learned similarity, combined networks or a
            query bank; None to rank by inner products.
        memory_limit_mb: memory for tiles of inner products, in MiB.
        photos: folder of the photos, or None.
        compare: function that maps image and text embeddings to `PairScores`.
        in_distances: whether scores of pairs are negative distances.
        bank_temperature: temperature for `score_tiles.normalize`, or None if
            `pairs` includes no query bank.
        phrases: `PhraseScores` of the split, which are added to the
            metrics and pictures, or None.
    """

    what = "images and captions"

    image_embeddings: np.ndarray
    text_embeddings: np.ndarray
    records: CaptionedImages
    pairs: score_tiles.PairScores | None = None
    memory_limit_mb: float = 512
    photos: pathlib.Path | None = None
    compare: Callable = score_tiles.distance_scores
    in_distances: bool = True
    bank_temperature: float | None = None
    phrases: PhraseScores | None = None

    @property
    def options(self):
        """The options of `metrics` and of `phrases.metrics`."""
        return "protocol", "text_to_text", *getattr(self.phrases, "options", ())

    @property
    def about_pictures(self):
        """Sentences that explain `pictures`."""
        about = [WHAT_IS_SHOWN, getattr(self.phrases, "about_pictures", "")]
        return " ".join(filter(None, about))

    @property
    def sides(self):
        """The embeddings of images and texts."""
        return {"images": self.image_embeddings, "texts": self.text_embeddings}

    @property
    def arrays(self):
        """The embeddings and their matches, or {} if `pairs` is set."""
        if self.pairs:
            return {}
        rows, groups = self._matches
        matches = {"caption_to_image": rows}
        if self.records.identities:
            pairs = group_pairs(groups, groups[rows])
            matches = {"positives": np.stack(pairs, axis=1)}
        return {
            "image_embeddings": self.image_embeddings,
            "text_embeddings": self.text_embeddings,
            **matches,
        }

    @property
    def _matches(self):
        return self.records.caption_to_image, self.records.image_groups

    def metrics(self, protocol="full", text_to_text=True, **of_phrases):
        """Returns the retrieval metrics, and the metrics of `phrases`.

        `protocol` is a key of `retrieval.PROTOCOLS`. If `text_to_text` is true
        and `pairs` is None, captions are also ranked against captions.
        `of_phrases` contains options of `PhraseScores.metrics`.
        """
        metrics = self._retrieval(protocol, text_to_text)
        if self.phrases:
            metrics |= self.phrases.metrics(**of_phrases)
        return metrics

    def _retrieval(self, protocol, text_to_text):
        if self.pairs:
            scored = protocol, self._normalized, *self._matches
            return retrieval.evaluate_scores_protocol(*scored)
        return retrieval.evaluate_protocol(
            protocol,
            self.image_embeddings,
            self.text_embeddings,
            *self._matches,
            memory_limit_mb=self.memory_limit_mb,
            text_to_text=text_to_text,
        )

    def difference(self, other):
        """Returns how much the recalls of `other` are above these recalls."""
        if type(other) is not type(self):
            return super().difference(other)
        check_same_examples(self.records, other.records, flag="--run_dir")
        return retrieval.recall_differences(self._ranks(), other._ranks())

    def _ranks(self):
        if self.pairs:
            return score_tiles.score_ranks(self._normalized, *self._matches)
        rows, groups = self._matches
        return retrieval.retrieval_ranks(
            *self.sides.values(),
            rows,
            memory_limit_mb=self.memory_limit_mb,
            text_to_text=False,
            image_groups=groups,
        )

    @property
    def _normalized(self):
        if self.bank_temperature is None:
            return self.pairs
        sizes = *self._counts, self.bank_temperature
        return score_tiles.normalize(self.pairs, *sizes)

    @property
    def _as_pairs(self):
        return self.pairs or self.compare(*self.sides.values())

    def with_bank(self, bank, temperature):
        """Returns these scores, normalised with a query bank."""
        sides = zip(self.sides.values(), bank.sides.values())
        pairs = self.compare(*map(np.concatenate, sides))
        return dataclasses.replace(
            self, pairs=pairs, bank_temperature=temperature
        )

    @property
    def _counts(self):
        return self.records.num_images, self.records.num_captions

    def pair_scores(self, records):
        """Returns the split's `PairScores`, and whether they are logits."""
        check_same_examples(records, self.records)
        return self._as_pairs, not self.in_distances

    def combine(self, other, weight):
        """Returns the combined scores of two models.

        ::

            D(x, y) = (1 - weight) d(x, y) + weight d'(x, y)

        Distances d and d' are not scaled, as in the paper. If either model
        returns logits, whose scale depends on the loss, d and d' are the
        negative scores, each divided by its standard deviation over 65536 fixed
        random pairs of the split. Combined scores are treated as logits. They
        have no `phrases`.

        Args:
            other: scores of a second model on the same images and captions.
            weight: weight of `other`, in [0, 1]. Wang et al. (2018) use 0.3.

        Source: Wang et al. 2018, Sec. 5.6, Eq. 8. Departure: the paper does not
        combine logits.
        """
        second, learned = other.pair_scores(self.records)
        terms, units = (self._as_pairs, second), (1.0, 1.0)
        if learned or not self.in_distances:
            rows = [np.arange(count) for count in self._counts]
            units = [score_tiles.spread(term.subset(*rows)) for term in terms]
        pairs = score_tiles.weighted_sum(*terms, weight, units)
        return dataclasses.replace(
            self, pairs=pairs, in_distances=False, phrases=None
        )

    def of_caption(self, row):
        """Returns the similarity of each image to a caption, `[num_images]`."""
        if self.pairs:
            images = np.arange(self.pairs.num_images)
            return self.pairs.tile(images, np.array([row]))[:, 0]
        return self.image_embeddings @ self.text_embeddings[row]

    def pictures(self):
        """Draws captions with their best images; returns {} without photos."""
        pictures = draw_answered_captions(self) if self.photos else {}
        return pictures | (self.phrases.pictures() if self.phrases else {})

    def points(self, most=FEW_POINTS):
        """Returns images, captions and phrases as `Points` in a shared space.

        If `pairs` is set, images and captions have no shared space.
        """
        points = None if self.pairs else image_and_caption_points(self, most)
        phrases = self.phrases.points(most) if self.phrases else None
        return joined([points, phrases])


def embed_images(model, split, cache=False):
    """Embeds the images of a `SplitData` with an exported model.

    Returns (records, embeddings), without photos that cannot be decoded.
    `cache` is as in `scores_of_model`.
    """
    if not model.takes_photos:
        features = np.concatenate(list(split.images.chunks()))
        images = search.embed(model.embed_images, features, "image")
        return split.records, images
    folder, paths = split.photo_folder, dict(enumerate(split.photos.paths))
    saved = embedding_cache.EmbeddingCache(model, folder, cache)
    rows, images = saved.embed(paths)
    return split.records.subset(rows), images


def scores_of_model(model, split, prompt="{}", cache=False):
    """Returns the `RetrievalScores` of an exported model on a `SplitData`.

    Args:
        model: `Served` that embeds images and sentences.
        split: `SplitData`, with photos or image features, as the model takes.
        prompt: text that contains {} for the caption.
        cache: as in `embedding_cache.EmbeddingCache`.
    """
    records, images = embed_images(model, split, cache)
    prompted = [prompt.replace("{}", caption) for caption in records.captions]
    texts = search.embed(model.embed_text, prompted, "caption")
    pairs = None
    if model.has("compare"):  # A learned similarity is computed by pair.

        def tile(i, j):
            return model.compare(images[i], texts[j])

        def one_by_one(i, j):
            rows = zip(i[:, None], j[:, None])
            return np.concatenate([tile(*pair)[0] for pair in rows])

        counts = len(images), len(texts)
        pairs = score_tiles.PairScores(*counts, tile, one_by_one)
    photos = split.photo_folder
    return RetrievalScores(images, texts, records, pairs, photos=photos)
