r"""Propose boxes that may contain an object, for all photos in a folder.

For example, 200 boxes per photo from EdgeBoxes, as in Wang et al. 2018:

  tbnets propose_regions --images=flickr30k/images \
      --output=proposals/edge_boxes

If the command is interrupted, run it again: it resumes. Photos that
cannot be decoded are listed and left out.

Also measure how many annotated boxes the proposals cover:

  tbnets make_scenes --folder=/tmp/scenes
  tbnets propose_regions --images=/tmp/scenes/images \
      --captions=/tmp/scenes/dataset.json --splits=test \
      --recall=/tmp/scenes/Annotations --output=/tmp/proposals

Requires an extra: pip install "tbnets[regions]". See docs/regions.md.
"""

import dataclasses

import numpy as np

from tbnets import files
from tbnets.checks import per_cent
from tbnets.cli.data_flags import PhotoFlags
from tbnets.data import entities, images
from tbnets.data.store.reader import open_store
from tbnets.evaluation import boxes as box_math
from tbnets.startup import usable_cores
from tbnets.tasks.recipes.image_features import Proposals, make_proposals
from tbnets.tasks.settings.flag import Count, Counts, flag
from tbnets.visualization.boxes import PhraseBox, draw_boxes
from tbnets.visualization.montage import draw_sheet

NUM_SHOWN, BOXES_SHOWN, CELL_SIZE = 4, 6, 320


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Proposals, PhotoFlags):
    """Flags for the proposals, and for their recall and picture."""

    workers: Count = flag(
        usable_cores(),
        "Photos processed at once; it does not affect the result.",
    )
    recall: str = flag(
        "",
        "Folder of Flickr30K Entities annotations, to measure the recall of "
        "the boxes.",
    )
    recall_iou: float = flag(
        0.5, "Minimum IoU between a box and its proposal. Papers: 0.5."
    )
    recall_at: Counts = flag(
        [50, 100, 200], "Numbers of boxes for which recall is printed."
    )
    picture: str = flag(
        "",
        "Picture (.png) of some photos with their first boxes and the boxes "
        "of --recall.",
    )


def report_recall(options, photos, store):
    """Prints the share of annotated boxes that the proposals cover.

    Boxes in photos without proposals count as missed.
    """
    total, limits = 0, options.recall_at
    covered, matches = np.zeros((2, len(limits)), np.int64)
    stored = set(store.ids)
    for key, path in photos:
        row = store.rows([key])[0] if key in stored else None
        size = None if row is None else store.sizes[row]
        truth = entities.read_boxes(options.recall, path.name, size)
        total += len(truth)
        if row is None:
            continue
        enough = box_math.iou(truth, store.boxes(row)[0]) >= options.recall_iou
        covered += [enough[:, :limit].any(axis=1).sum() for limit in limits]
        matches += [enough[:, :limit].sum() for limit in limits]
    print(
        f"\nrecall of the {total} boxes of {options.recall} in {len(photos)} "
        f"photos at IoU >= {options.recall_iou}, and proposals per box"
    )
    for limit, count, pairs in zip(limits, covered, matches):
        recall = per_cent(count / max(1, total))
        mean = f"{pairs / max(1, total):.2f}"
        print(f"  first {limit:5d} boxes  {recall:>5} %  {mean}")


def draw_picture(options, photos, store):
    """Draws some photos with their first boxes to --picture."""
    stored = set(store.ids)
    photos = [photo for photo in photos if photo[0] in stored]
    step = max(1, len(photos) // NUM_SHOWN)
    cells = []
    for key, path in photos[::step][:NUM_SHOWN]:
        [row] = store.rows([key])
        cells.append(draw_boxes_cell(options, path, store.boxes(row)[0]))
    files.write_png(options.picture, draw_sheet([cells]), optimize=True)
    print(f"picture   {options.picture}")


def draw_boxes_cell(options, path, boxes):
    """Draws one photo with its first boxes and the boxes of --recall."""
    pixels = images.read_photo(path)
    drawn = [
        PhraseBox(box, str(rank), rank)
        for rank, box in enumerate(boxes[:BOXES_SHOWN], start=1)
    ]
    if options.recall:
        size = pixels.shape[1::-1]
        truth = entities.read_boxes(options.recall, path.name, size)
        drawn += [PhraseBox(box, "true", 0) for box in truth]
    return draw_boxes(pixels, drawn, CELL_SIZE)


def main(options):
    """Proposes boxes, measures their recall and draws some of them."""
    photos = options.find_photos()
    make_proposals(photos, options, options.output, options.workers)
    store = open_store(options.output)
    print(
        f"store     {options.output}: {store.counts.sum()} boxes by "
        f"{options.method}, at most {options.limit} boxes per photo"
    )
    if options.recall:
        report_recall(options, photos, store)
    if options.picture:
        draw_picture(options, photos, store)
