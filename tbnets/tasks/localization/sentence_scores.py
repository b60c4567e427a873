"""How well sentences fit photos by their phrases and the photos' regions.

The distance of Wang et al. 2018, Sec. 5.6: each phrase of a sentence y looks
for its best region of a photo x, whether y was said of x or not::

    d_rp(x, y) = mean over phrases p of y of  min over regions r of x  d(r, p)
"""

import numpy as np

from tbnets.data.same_captions import same_captions
from tbnets.errors import InputError
from tbnets.evaluation.score_tiles import PairScores
from tbnets.tasks.scores import check_same_examples


def sentence_scores(scores, records):
    """Scores photos and sentences by regions and phrases.

    Args:
        scores: `LocalizationScores` of a split, by a network.
        records: `CaptionedImages` of the same photos in the same order, whose
            captions are to be scored.

    Returns:
        `PairScores`, minus d_rp. A sentence without phrases has the mean of
        the other sentences in each photo, so that it prefers none.

    Raises:
        ValueError: the embeddings are compared by a learned head, a photo has
            no regions, or no sentence has a phrase.

    Source: Wang et al. 2018, Eq. 8. Departure: phrases are those of the
        annotation that have a box.
    """
    if scores.learned_similarity:
        raise InputError(
            "`--combine_with` must be a run whose distances can be added. "
            "Received: a similarity network of phrases. Name a run of "
            "--model=embedding."
        )
    phrases = scores.phrases
    texts, first = np.unique(phrases.phrase_to_text, return_index=True)
    similarities = scores.nearest(scores.sides["phrases"][first])
    distances = np.sqrt(np.maximum(2 - 2 * similarities, 0))
    lonely = np.flatnonzero(~np.isfinite(distances).all(axis=1))
    if lonely.size:
        raise InputError(
            "`--regions` must hold regions of every photo. Received: none of "
            f"{records.image_ids[lonely[0]]!r}. Propose some."
        )
    columns = np.searchsorted(texts, phrases.phrase_to_text)
    captions = captions_of_phrases(phrases, records)
    table = -_mean_of_phrases(distances, columns, captions, records)
    return PairScores(
        *table.shape,
        lambda images, captions: table[np.ix_(images, captions)],
        lambda images, captions: table[images, captions],
    )


def _mean_of_phrases(distances, columns, captions, records):
    """Returns d_rp, float32 `[num_images, num_captions]`."""
    total = np.zeros((records.num_captions, len(distances)), np.float64)
    np.add.at(total, captions, distances.T[columns])
    counts = np.bincount(captions, minlength=records.num_captions)
    spoken = counts > 0
    if not spoken.any():
        raise InputError(
            "`--phrases` must hold phrases of the captions. Received: none of "
            f"{records.path} that has a box. Name phrases of these photos."
        )
    total[spoken] /= counts[spoken, None]
    total[~spoken] = total[spoken].mean(axis=0)
    return total.T.astype(np.float32)


def captions_of_phrases(phrases, records):
    """Finds in which caption each phrase stands.

    Phrases come with captions of their own: see `data.same_captions`.

    Args:
        phrases: `PhraseRegions`.
        records: `CaptionedImages` of the same photos in the same order.

    Returns:
        int64 `[num_phrases]`, rows of the captions of `records`.

    Raises:
        ValueError: the photos differ, or one has other captions.
    """
    check_same_examples(records, phrases.images, ("image_ids",))
    photos = np.arange(records.num_images)
    found, _ = same_captions(phrases.images, records, photos)
    captions = found[phrases.phrase_to_caption]
    if (captions < 0).any():
        lost = phrases.phrase_to_caption[np.argmin(captions)]
        image = int(phrases.images.caption_to_image[lost])
        raise InputError(
            "`--captions` must be those that phrases were marked in. Received: "
            f"photo {records.image_ids[image]!r} without "
            f"{phrases.images.captions[lost]!r}. Name them."
        )
    return captions
