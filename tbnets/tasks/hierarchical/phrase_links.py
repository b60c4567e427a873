"""Known links of phrases to boxes -> the noun phrases of parsed captions."""

import numpy as np

from tbnets.data.same_captions import same_captions
from tbnets.evaluation.correspondences import Links, phrases_of_spans
from tbnets.identity import rows_of
from tbnets.text.words import split_words


def find_links(known, records, phrases):
    """Finds the noun phrase of each phrase whose box is known.

    Captions are found by their letters: those of the links may come in
    another order and with other blanks.

    Args:
        known: `data.phrases.PhraseRegions` of photos of the records, in
            pixels of the photos.
        records: `CaptionedImages` of a split.
        phrases: `NounPhrases` of their captions.

    Returns:
        `Links`.
    """
    photos = rows_of(known.images.image_ids, records.image_ids)
    rows, has_same_words = same_captions(known.images, records, photos)
    # Spans count words: of a caption in other words they say nothing.
    places = np.where(has_same_words, rows, -1)
    starts = _word_starts(known.images.captions)
    captions = known.phrase_to_caption
    spans = [starts[row][span] for row, span in zip(captions, known.spans)]
    spans = np.array(spans, np.int64).reshape(-1, 2)
    found, is_exact = phrases_of_spans(places[captions], spans, phrases)
    kept = np.flatnonzero(found >= 0)
    return Links(
        found[kept],
        known.boxes[kept],
        photos[known.phrase_to_image[kept]],
        known.phrase_to_chain[kept],
        is_exact[kept],
        len(found) - len(kept),
    )


def _word_starts(captions):
    """Returns of each caption how many words stand before each piece.

    Pieces are what blanks divide, words what networks read: `T-shirt` is one
    piece and two words, a comma is a piece and no word.
    """
    pieces = [caption.split() for caption in captions]
    flat = [piece for row in pieces for piece in row]
    counts = np.zeros(0, np.int64)
    if flat:
        counts = split_words(flat).row_lengths().numpy()
    ends = np.cumsum([len(row) for row in pieces])
    return [np.cumsum(np.append(0, one)) for one in np.split(counts, ends[:-1])]
