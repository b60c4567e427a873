"""Calls that are refused, each with the argument that its error is about."""

import numpy as np
import pytest

from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.cnn import build_cnn
from tbnets.features.fisher import FisherFeatures
from tbnets.features.image_encoders import ApplicationEncoder
from tbnets.features.proposals import Proposer, proposer_of
from tbnets.features.regions import AveragedFeatures, WarpFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.text.word_vectors import WordVectors
from tests.features.tiny_cnn import tiny_cnn
from tests.refusals import refused

PHOTO = np.zeros((9, 9, 3), np.uint8)
TURNED = [[5, 0, 2, 3]]
TOLD = Proposer().description()
NO_WORDS = WordVectors((), np.zeros((0, 6), np.float32))
TWO_WORDS = WordVectors(("a", "dog"), np.eye(2, 6, dtype=np.float32))


def average(layers=("first", "second"), **options):
    return AveragedFeatures(tiny_cnn(), layers, **options)


CALLS = [
    ("name", lambda: build_cnn("AlexNet")),
    ("name", lambda: ApplicationEncoder("AlexNet")),
    ("layers", lambda: tiny_cnn().outputs(["fc7"])),
    ("layers", lambda: WarpFeatures(tiny_cnn(), "fc7")),
    ("layers", lambda: average(["fc2"])),
    ("grids", lambda: average(grids=[2])),
    ("scales", lambda: average(scales=[0, 1])),
    ("boxes", lambda: WarpFeatures(tiny_cnn())(PHOTO, TURNED)),
    ("boxes", lambda: average()(PHOTO, TURNED)),
    (
        "num_components",
        lambda: FisherFeatures(3).fit(["a dog"], TWO_WORDS),
    ),
    ("fit", lambda: MeanFeatures().fit([], NO_WORDS).transform(["a"])),
    ("captions", lambda: TfidfFeatures().fit([])),
    ("captions", lambda: TfidfFeatures().fit(["the of a", ""])),
    ("num_terms", lambda: TfidfFeatures(0)),
    ("method", lambda: Proposer("windows")),
    ("limit", lambda: Proposer(limit=0)),
    ("iou_threshold", lambda: Proposer(iou_threshold=1.2)),
    ("iou_decay", lambda: Proposer(iou_decay=0.3)),
    ("iou_decay", lambda: Proposer("selective_search", iou_decay=0.9)),
    ("description", lambda: proposer_of(["edge_boxes"])),
    ("description", lambda: proposer_of(TOLD | {"limit": "3"})),
    ("pixels", lambda: Proposer()(PHOTO[..., 0])),
    ("pixels", lambda: Proposer()(PHOTO.astype("float32"))),
]


@pytest.mark.parametrize(("argument", "call"), CALLS)
def test_calls_are_refused(argument, call):
    with refused(argument):
        call()
