"""What people see of a run of phrase localization beside its numbers."""

import numpy as np

from tbnets.evaluation import boxes as box_math
from tbnets.identity import SAME_THING, rows_by
from tbnets.tasks.scores import spread
from tbnets.visualization import boxes as box_pictures
from tbnets.visualization import montage

NUM_PHOTOS = 5
NUM_PHRASES = 3
WHAT_IS_SHOWN = (
    "A photo with phrases and their true boxes, and with the boxes ranked "
    "first for them. Tick, solid: overlaps the true box enough (IoU 0.5); "
    "cross, dashed: does not."
)


def shown_phrases(phrases):
    """Chooses photos, evenly spread, and phrases of different things in each.

    Args:
        phrases: `PhraseRegions`.

    Returns:
        dict, row of a photo -> rows of its phrases; at most `NUM_PHOTOS` with
        `NUM_PHRASES` each, the same ones each time.
    """
    owned = rows_by(phrases.phrase_to_image, phrases.images.num_images)
    told = np.flatnonzero([len(rows) > 0 for rows in owned])
    shown = {}
    for image in told[spread(len(told), NUM_PHOTOS)]:
        rows = owned[image]
        _, firsts = np.unique(phrases.phrase_to_chain[rows], return_index=True)
        firsts = np.sort(firsts)
        shown[int(image)] = rows[firsts[spread(len(firsts), NUM_PHRASES)]]
    return shown


def draw_found_regions(scores):
    """Draws what is said of a few photos: the true boxes, and those found.

    Args:
        scores: `LocalizationScores` of a split whose photos are at hand.

    Returns:
        dict, number of the picture -> uint8 `[height, width, 3]`. A photo
        that can not be read is left out.
    """
    phrases, pictures = scores.phrases, {}
    for number, (image, rows) in enumerate(shown_phrases(phrases).items(), 1):
        name = phrases.images.file_name(image)
        photo = montage.open_photo(scores.photos, name)
        if photo is None:
            continue
        # Photos may lie there in another size than that of the regions.
        scale = np.tile(np.divide(photo.size, phrases.image_sizes[image]), 2)
        true_boxes, found = phrases.boxes[rows], []
        truth = [
            box_pictures.PhraseBox(box * scale, phrases.phrases[row], colour)
            for colour, (row, box) in enumerate(zip(rows, true_boxes))
        ]
        proposals = np.asarray(scores.proposals[image], np.float64)
        if len(proposals):
            said = scores.similarities[rows, : len(proposals)]
            chosen = proposals[said.argmax(axis=1)]
            is_right = np.diag(box_math.iou(true_boxes, chosen)) >= SAME_THING
            found = [
                one._replace(box=box * scale, is_right=bool(right))
                for one, box, right in zip(truth, chosen, is_right)
            ]
        drawn = box_pictures.draw_side_by_side(photo, truth, found)
        pictures[str(number)] = drawn
    return pictures
