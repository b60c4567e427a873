r"""Proposes boxes that may hold an object, for all photos of a folder.

For instance, 200 boxes of EdgeBoxes a photo, as Wang et al. 2018 use:

  python tools/propose_regions.py --images=flickr30k/images \
      --output=proposals/edge_boxes

Stopped at any moment, the same command goes on where it was and writes the
same bytes. Photos that do not decode are listed and left out; mend them and
run the command again.

With boxes that people drew, it also tells how many of them were found:

  python tools/make_scenes.py --folder=/tmp/scenes
  python tools/propose_regions.py --images=/tmp/scenes/images \
      --captions=/tmp/scenes/dataset.json --splits=test \
      --recall=/tmp/scenes/Annotations --output=/tmp/proposals

Needs the extra: pip install -e ".[regions]". docs/regions.md tells more.
"""

import pathlib
import time

import numpy as np
import PIL.Image
import PIL.ImageDraw
import tqdm
from absl import flags

from tbnets import startup
from tbnets.cores import usable_cores
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import boxes as box_math
from tbnets import images
from tbnets.data import entities
from tbnets.features import extraction, proposals
from tbnets.flags.photos import define_photo_flags
from tbnets.rounding import per_cent
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter

_find_photos = define_photo_flags()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the store of proposals.", required=True
)
_METHOD = flags.DEFINE_enum(
    "method",
    "edge_boxes",
    list(proposals.IOU_THRESHOLDS),
    "edge_boxes (Zitnick & Dollar 2014) or selective_search (Uijlings et al. "
    "2013).",
)
_LIMIT = flags.DEFINE_integer(
    "limit", 200, "Most boxes of a photo. Wang 2018: 200.", lower_bound=1
)
_IOU_THRESHOLD = flags.DEFINE_float(
    "iou_threshold",
    None,
    "Boxes that overlap a better one by more are dropped, 0 to 1; by default "
    + ", ".join(f"{v} for {k}" for k, v in proposals.IOU_THRESHOLDS.items())
    + ".",
)
_IOU_DECAY = flags.DEFINE_float(
    "iou_decay",
    1.0,
    "What edge_boxes multiplies --iou_threshold by for each box it keeps, "
    "while it is above 0.5; with --iou_threshold=0.9 --iou_decay=0.996 the "
    "best boxes have close neighbours and the others are far apart.",
)
_MAX_ASPECT_RATIO = flags.DEFINE_float(
    "max_aspect_ratio",
    3.0,
    "Most times that a box of edge_boxes is wider than high, or higher.",
)
_LONGEST_SIDE = flags.DEFINE_integer(
    "longest_side",
    500,
    "Larger photos are scaled down to so many pixels while boxes are sought.",
)
_MIN_AREA = flags.DEFINE_float(
    "min_area", 0.005, "Least area of a box, as a fraction of the photo."
)
_WORKERS = flags.DEFINE_integer(
    "workers",
    usable_cores(),
    "Photos worked on at once; the result does not depend on it.",
    lower_bound=1,
)
_SHARD_IMAGES = flags.DEFINE_integer(
    "shard_images",
    extraction.SHARD_IMAGES,
    "Photos a shard: a kill costs no more than this.",
    lower_bound=1,
)
_RECALL = flags.DEFINE_string(
    "recall",
    None,
    "Folder of Flickr30K Entities annotations (ID.xml), to tell how many of "
    "their boxes were found.",
)
_RECALL_IOU = flags.DEFINE_float(
    "recall_iou", 0.5, "Least overlap that counts as found. Papers: 0.5."
)
_RECALL_AT = flags.DEFINE_list(
    "recall_at", ["50", "100", "200"], "Numbers of boxes to tell it for."
)
_PICTURE = flags.DEFINE_string(
    "picture",
    None,
    "PNG file to draw: some photos with their first boxes, and with the "
    "boxes of --recall in white.",
)

NUM_SHOWN = 4
BOXES_SHOWN = 6
CELL_SIZE = 224
COLOURS = ("red", "orange", "yellow", "lime", "cyan", "magenta")


def build_proposer():
    """Returns the `Proposer` of the flags."""
    return proposals.Proposer(
        _METHOD.value,
        _LIMIT.value,
        _IOU_THRESHOLD.value,
        _LONGEST_SIDE.value,
        _MIN_AREA.value,
        _IOU_DECAY.value,
        _MAX_ASPECT_RATIO.value,
    )


def run(photos, proposer, writer):
    """Proposes with a progress bar; returns the failures and the seconds."""
    start = time.perf_counter()
    with tqdm.tqdm(
        total=len(extraction.remaining(photos, writer)),
        unit="photo",
        smoothing=0.1,
        disable=None,
    ) as bar:
        failures = proposals.propose_photos(
            photos,
            proposer,
            writer,
            workers=_WORKERS.value,
            shard_images=_SHARD_IMAGES.value,
            progress=bar.update,
        )
    writer.finish()
    return failures, time.perf_counter() - start


def report(failures, done, seconds, store):
    """Prints what was done."""
    for path, reason in failures:
        print(f"left out: {path}, which {reason}")
    speed = f", {done / seconds:.2f} photos/s" if done else ""
    boxes = int(store.counts.sum())
    print(
        f"{done} photos in {seconds:.0f} s{speed}; {len(store)} in the store "
        f"with {boxes} boxes, {len(failures)} left out\n"
        f"store     {_OUTPUT.value}: {_METHOD.value}, at most {_LIMIT.value} "
        "boxes a photo"
    )


def recall_limits():
    """Returns --recall_at as numbers, checked before any work is done."""
    limits = [int(text) if text.isdecimal() else 0 for text in _RECALL_AT.value]
    if not limits or min(limits) < 1:
        raise InputError(
            "`--recall_at` must be whole numbers from 1. Received: "
            f"--recall_at={','.join(_RECALL_AT.value)}. Write for example "
            "--recall_at=50,100,200."
        )
    return limits


def report_recall(photos, store, limits):
    """Prints how many boxes of the annotations the proposals found.

    All boxes of all photos count alike; those of photos without proposals
    are not found.
    """
    total = 0
    found, matches = np.zeros((2, len(limits)), np.int64)
    stored = set(store.ids)
    for key, path in photos:
        truth = entities.read_boxes(_RECALL.value, path.name)
        total += len(truth)
        if key in stored:
            row = int(store.rows([key])[0])
            if store.sizes is not None:
                size = store.sizes[row]
                truth = entities.read_boxes(_RECALL.value, path.name, size)
            overlaps = box_math.iou(truth, store.boxes(row)[0])
            enough = overlaps >= _RECALL_IOU.value
            for i, limit in enumerate(limits):
                found[i] += enough[:, :limit].any(axis=1).sum()
                matches[i] += enough[:, :limit].sum()
    print(
        f"\nboxes of {_RECALL.value} found (IoU at least {_RECALL_IOU.value}),"
        f" of {total} in {len(photos)} photos"
    )
    for limit, count, pairs in zip(limits, found, matches):
        share = "none to find"
        if total:
            share = per_cent(count / total)
            share = f"{share:>5} %, each by {pairs / total:.2f}"
        print(f"  first {limit:5d} boxes  {share}")


def draw_picture(photos, store):
    """Draws the first boxes of some photos, alike from all over the list."""
    stored = set(store.ids)
    photos = [photo for photo in photos if photo[0] in stored]
    step = max(1, len(photos) // NUM_SHOWN)
    shown = photos[::step][:NUM_SHOWN]
    sheet = PIL.Image.new("RGB", (CELL_SIZE * max(1, len(shown)), CELL_SIZE))
    for number, (key, path) in enumerate(shown):
        boxes, _ = store.boxes(store.rows([key])[0])
        sheet.paste(draw_cell(path, boxes), (CELL_SIZE * number, 0))
    pathlib.Path(_PICTURE.value).parent.mkdir(parents=True, exist_ok=True)
    # A palette makes the file a quarter of its size; rare colours stay.
    sheet = sheet.quantize(
        96, PIL.Image.Quantize.MAXCOVERAGE, dither=PIL.Image.Dither.NONE
    )
    sheet.save(_PICTURE.value, "PNG", optimize=True)
    print(f"picture   {_PICTURE.value}")


def draw_cell(path, boxes):
    """Draws one photo in a square with boxes on it, the best on top."""
    cell = PIL.Image.fromarray(images.read_photo(path))
    size = cell.size
    scale = CELL_SIZE / max(cell.size)
    cell = cell.resize([max(1, round(scale * side)) for side in cell.size])
    draw = PIL.ImageDraw.Draw(cell)
    drawn = list(zip(boxes[:BOXES_SHOWN], COLOURS))[::-1]
    if _RECALL.value:
        truth = entities.read_boxes(_RECALL.value, path.name, size)
        drawn = [(box, "white") for box in truth] + drawn
    for box, colour in drawn:
        x_min, y_min, x_max, y_max = (scale * box).tolist()
        width = 3 if colour == "white" else 2
        edges = (x_min, y_min, max(x_min, x_max - 1), max(y_min, y_max - 1))
        draw.rectangle(edges, outline=colour, width=width)
    return cell


def main(argv):
    """Proposes by the flags; tells the recall and draws if asked."""
    if len(argv) > 1:
        raise InputError(
            "`propose_regions.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    limits = recall_limits()
    proposer = build_proposer()
    photos = _find_photos()
    writer = FeatureWriter(
        _OUTPUT.value, proposer.description(), 0, kind="regions"
    )
    before = len(writer.done)
    failures, seconds = run(photos, proposer, writer)
    store = open_store(_OUTPUT.value)
    report(failures, len(store) - before, seconds, store)
    if _RECALL.value:
        report_recall(photos, store, limits)
    if _PICTURE.value:
        draw_picture(photos, store)


if __name__ == "__main__":
    startup.run_tool(main)
