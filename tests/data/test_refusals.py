"""Arguments that the package `data` refuses, and what the error names."""

import dataclasses

import numpy as np
import pytest

import tbnets
from tbnets.data.batches import ArrayRows
from tbnets.data.images import read_content
from tbnets.data.phrase_examples import hard_negatives
from tbnets.data.scenes.layout import SceneSettings
from tests import refusals

WORDS, NAN = np.zeros((2, 3)), np.full((2, 3), np.nan)
ROWS = [0, 1]
PIXELS = np.zeros((12, 20, 3), np.uint8)
WIDE = np.zeros((1, 32768), np.int8)


def records(ids="xy", rows=ROWS, **more):
    rows = np.asarray(rows)
    return tbnets.CaptionedImages([*ids], ["p", "q"], rows, "s", "h", **more)


def phrases(**changes):
    """Returns two phrases, one for each caption of `records`."""
    return tbnets.PhraseRegions(
        **{
            "images": records(),
            "image_sizes": [[50, 40]] * 2,
            "phrases": ["a dog", "a cat"],
            "phrase_ids": ["x#0#0", "y#0#0"],
            "phrase_to_caption": ROWS,
            "spans": [[0, 2]] * 2,
            "types": [(), ()],
            "chains": ["1", "1"],
            "boxes": [[0, 0, 9, 9]] * 2,
            **changes,
        }
    )


def batches(images, captions, of=None):
    arrays = tbnets.Examples.from_arrays(WORDS, WORDS, ROWS)
    return tbnets.EpochBatches(of or arrays, images, captions, seed=0)


def examples(captions):
    return tbnets.Examples.from_arrays(WORDS, captions, ROWS)


EMPTY = tbnets.Examples(
    dataclasses.replace(records(), captions=[], caption_to_image=[]),
    ArrayRows(WORDS),
    ArrayRows(WORDS[:0]),
)
CALLS = [
    ("image_ids", lambda: records(ids="xx")),
    ("caption_to_image", lambda: records(rows=[0, 2])),
    ("caption_to_image", lambda: records(rows=[0.0, 1.0])),
    ("file_names", lambda: records(file_names=["x"])),
    ("identities", lambda: records(identities=["7"])),
    ("image_rows", lambda: records().subset([-1])),
    ("image_ids", lambda: records().subset([1, 1])),
    ("phrase_ids", lambda: phrases(phrase_ids=["a", "a"])),
    ("spans", lambda: phrases(spans=[[0, 1]])),
    ("chains", lambda: phrases(chains=["1"])),
    ("boxes", lambda: phrases(boxes=[[0, 0, 9, 9]])),
    ("boxes", lambda: phrases(boxes=[[5, 1, 5, 3]] * 2)),
    ("boxes", lambda: phrases(boxes=[[5, 1, 51, 3]] * 2)),
    ("captions_per_image", lambda: batches(2, 0)),
    ("examples", lambda: batches(2, 2, EMPTY)),
    ("captions", lambda: examples(NAN)),
    ("roles", lambda: hard_negatives(WIDE.astype("f4"), WIDE, 1)),
    ("num_dev", lambda: SceneSettings(num_dev=2.5)),
    ("clutter", lambda: SceneSettings(clutter=1.5)),
    ("photo", lambda: read_content(np.float32(PIXELS))),
    ("photo", lambda: read_content(PIXELS[..., :2])),
    ("image_bytes", lambda: tbnets.decode_images(PIXELS, 12)),
]


@pytest.mark.parametrize("argument, call", CALLS)
def test_the_error_names_the_argument(argument, call):
    with refusals.refused(argument):
        call()
