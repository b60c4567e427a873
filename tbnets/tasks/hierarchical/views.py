"""Photos with the regions that a caption's noun phrases were given."""

import numpy as np

from tbnets.evaluation.boxes import iou
from tbnets.identity import SAME_THING
from tbnets.tasks.scores import spread
from tbnets.text.words import split_words
from tbnets.visualization import boxes as box_pictures
from tbnets.visualization import montage

NUM_PHOTOS = 5
NUM_PHRASES = 4
WHAT_IS_SHOWN = (
    "A photo with the region that each noun phrase of one of its captions "
    "was given. Tick, solid: overlaps the true box enough (IoU 0.5); cross, "
    "dashed: does not; neither: no box is known."
)


def draw_correspondences(scores):
    """Draws the regions of the noun phrases of a few captions.

    Args:
        scores: `CorrespondenceScores` of a split whose photos are at hand and
            whose links are known; the same captions each time.

    Returns:
        dict, name of the picture -> uint8 `[height, width, 3]`. A photo that
        can not be read is left out.

    Source: Niu et al. 2017, Fig. 7.
    """
    examples, links = scores.examples, scores.links
    records, phrases = examples.records, examples.phrases
    # Of each photo the caption with the most to see, up to what is drawn.
    counts = np.minimum(np.diff(phrases.starts), NUM_PHRASES)
    told = [
        rows[np.argmax(counts[rows])]
        for rows in records.caption_rows()
        if len(rows) and counts[rows].any()
    ]
    pictures, known = {}, dict(zip(links.phrases, links.boxes))
    for number, place in enumerate(spread(len(told), NUM_PHOTOS), start=1):
        caption = told[place]
        image = records.caption_to_image[caption]
        photo = montage.open_photo(scores.photos, records.names[image])
        if photo is None:
            continue
        # The last is the photo, which may lie there in another size.
        found = examples.regions.candidates(image)
        scale = np.tile(np.divide(photo.size, found[-1, 2:]), 2)
        rows = phrases.rows_of(np.array([caption]))[:NUM_PHRASES]
        drawn = []
        for colour, row in enumerate(rows):
            box, is_right = found[scores.choices[row]], None
            if row in known:
                is_right = bool(iou([known[row]], [box])[0, 0] >= SAME_THING)
            words = said(examples, row)
            one = box_pictures.PhraseBox(box * scale, words, colour, is_right)
            drawn.append(one)
        pictures[f"phrases_{number}"] = box_pictures.draw_boxes(
            photo, drawn, heading=records.captions[caption]
        )
    return pictures


def shown_phrases(examples, captions):
    """Returns rows of noun phrases of captions, each wording once.

    Args:
        examples: `PairExamples`.
        captions: int `[m]`, rows of captions.

    Returns:
        int `[p]`: at most as many phrases as captions, evenly spread.
    """
    rows = examples.phrases.rows_of(captions)
    _, first = np.unique(examples.phrases.texts[rows], return_index=True)
    return rows[np.sort(first)][spread(len(first), len(captions))]


def said(examples, phrase):
    """Returns the words of a noun phrase, as its caption has them.

    Args:
        examples: `PairExamples`.
        phrase: its row.
    """
    caption = examples.records.captions[examples.phrases.captions[phrase]]
    first, end = examples.phrases.spans[phrase]
    [words] = split_words([caption]).to_list()
    return b" ".join(words[first:end]).decode()
