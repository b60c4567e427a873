"""What newcomers write in their first programs: one error each that helps.

Beside each misuse stands the argument that its error names. It comes before
anything long is begun.
"""

import functools
import math
import typing

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tbnets
from tbnets import seeds
from tbnets.errors import UserError
from tbnets.evaluation import (
    boxes,
    choices,
    query_bank,
    score_tiles,
)
from tbnets.evaluation.choices import CANDIDATE_CHOICES, checked_choice
from tbnets.evaluation.retrieval import evaluate_protocol
from tbnets.models import cca
from tbnets.serving.search import PhotoSearch
from tbnets.serving.served import Served
from tests.evaluation.test_score_tiles import of_matrix
from tests.refusals import assert_about

ROWS = np.random.default_rng(0).normal(size=(6, 8)).astype("f4")
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
IDS = np.arange(6)
EYE = np.eye(6, dtype=bool)
SCORES = UNIT @ UNIT.T
VOCABULARY = tbnets.Vocabulary.build(["a dog runs", "a cat sleeps"])
TOKENIZER = tbnets.Tokenizer(VOCABULARY)
TOKENS = np.full((6, 3), 2, np.int32)
NAN, INF = math.nan, math.inf
RAGGED = [[1.0], [1.0, 2.0]]
BOX = [[0, 0, 4, 4]]
LOSS = tbnets.TripletLoss()
SHAPES = {"images": (None, 8), "captions": (None, 8)}
TREE_SHAPES = {"images": (None, 5), "captions": (None, None, 6)}
TREE = tbnets.read_tree("(NN dog)")


def branches():
    return tbnets.Branch((4,)), tbnets.Branch((4,))


def network(encoder=None, built=False):
    made = tbnets.EmbeddingNetwork(*branches(), text_encoder=encoder)
    if built:
        words = (None, None) if encoder else (None, 8)
        made.build({"images": (None, 8), "captions": words})
    return made


def reader(built=False):
    return network(tbnets.MeanOfWords(VOCABULARY.size, 4), built)


def fit(made, x=None, with_x=None, **changes):
    made.compile("adam", LOSS)
    ids = {"image_ids": IDS, "caption_image_ids": IDS}
    pairs = {"images": ROWS, "captions": ROWS} | ids
    more = with_x or {}
    made.fit(pairs | changes if x is None else x, verbose=0, **more)


def examples(**changes):
    given = {"images": ROWS, "captions": ROWS, "caption_to_image": IDS}
    return tbnets.Examples.from_arrays(**given | changes)


def transform(batches):
    tbnets.FeatureTransform(("standardize",)).adapt(batches)


def export(made, vocabulary, **shapes):
    shapes = shapes or {"image_shape": (8,)}
    tbnets.export_saved_model(made, vocabulary, "never/1", **shapes)


class Finder:
    """A served model that would find whatever it is asked for."""

    takes_photos = True
    embedding_dim = 8
    vocabulary = VOCABULARY
    metadata: typing.ClassVar = {}

    def has(self, *names):
        return True

    def embed_text(self, texts):
        return UNIT[: len(texts)]

    def compare(self, images, texts):
        return images @ texts.T

    def localize(self, phrases, photo, boxes):
        return np.zeros((len(phrases), len(boxes)), np.float32)


PHOTO = PIL.Image.new("RGB", (40, 30))


def find(**given):
    Served.find(Finder(), ["a dog"], PHOTO, **given)


def search(queries=("a dog",), images=UNIT, **given):
    PhotoSearch.search(Finder(), queries, images, **given)


def retrieve(images=UNIT, texts=UNIT, rows=IDS, **given):
    tbnets.evaluate_retrieval(images, texts, rows, **given)


def localize(scores=((1.0,),), **given):
    count = len(scores)
    rest = [BOX], BOX * count, [0] * count
    tbnets.evaluate_localization(scores, *rest, **given)


def localize_one(**given):
    usual = {"scores": np.zeros((1, 4)), "proposals": [BOX * 4]}
    usual |= {"truth": BOX, "phrase_to_image": [0]}
    tbnets.evaluate_localization(**usual | given)


def bootstrap(*given, **more):
    tbnets.bootstrap_interval([1, 2], *given, **more)


def suppress(scores=(1,), iou_threshold=0.5, limit=None):
    boxes.non_maximum_suppression(BOX, scores, iou_threshold, limit)


def level(num_own=(5, 7), temperature=0.1, one=1):
    query_bank.normalize(of_matrix(np.eye(9) * one), *num_own, temperature)


def with_positives(positives):
    texts = np.eye(3, 2) + 1
    tbnets.evaluate_retrieval(np.eye(2), texts, positives=positives)


def compiled(**given):
    network().compile("adam", LOSS, **given)


def trees(region_dim=4):
    encoder = tbnets.TreeEncoder(9, 3, 6)
    branch = tbnets.Branch((region_dim,))
    return tbnets.HMLSTM(
        *branches(), text_encoder=encoder, region_branch=branch
    )


def trees_built(**dims):
    made = trees(**dims)
    made.build(TREE_SHAPES | {"regions": (None, 5)})
    return made


def sides(dim=2, has_bias=False):
    return (
        tbnets.CanonicalProjection(dim),
        tbnets.CanonicalProjection(dim, has_bias),
    )


def solve(dim=2, background=0.0, regularization=0.5, **changes):
    made = tbnets.CCA(
        *sides(dim, background > 0),
        background=background,
        regularization=regularization,
    )
    made.compile(run_eagerly=True)
    batch = {"images": ROWS, "captions": ROWS[:, :4]}
    batch |= {"image_ids": IDS, "caption_image_ids": IDS} | changes
    made.fit(dataset(batch), shuffle=False, verbose=0)


def unequal(text_branch=None):
    text_branch = text_branch or tbnets.Branch((5,))
    return tbnets.EmbeddingNetwork(tbnets.Branch((4,)), text_branch)


UNNAMED = {"images": ROWS, "captions": ROWS}


def dataset(batch):
    return tf.data.Dataset.from_tensors(batch)


def judge():
    return tbnets.SimilarityNetwork(*branches())


WORDS = tbnets.MeanOfWords(9, 5)
MODELS = [
    ("loss", lambda: network().compile("adam", "mse")),
    ("loss", lambda: network().compile("adam", tbnets.TripletLoss)),
    ("metrics", lambda: compiled(metrics=["mae"])),
    ("loss_weights", lambda: compiled(loss_weights=[1.0])),
    ("text_branch", lambda: unequal().build(SHAPES)),
    ("inputs", lambda: network().build((None, 8))),
    ("images", lambda: network().embed_images(["dog.jpg"])),
    ("captions", lambda: network().embed_text("a dog")),
    ("inputs", lambda: network(built=True)({"images": ROWS})),
    ("batch", lambda: fit(network(), x=dataset((ROWS, ROWS)))),
    ("batch", lambda: fit(network(), x=dataset(UNNAMED))),
    ("batch", lambda: fit(network(built=True), x=dataset(UNNAMED))),
    ("batch", lambda: network().test_step((ROWS, ROWS))),
    ("batch", lambda: network().batch_loss(ROWS)),
    ("batch", lambda: judge().batch_loss(UNNAMED)),
    ("batch", lambda: trees_built().batch_loss(UNNAMED)),
    ("y", lambda: fit(network(), with_x={"y": IDS})),
    ("sample_weight", lambda: fit(network(), with_x={"sample_weight": IDS})),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS + 100)),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS * 0.5)),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS.astype(bool))),
    ("x['captions']", lambda: fit(reader(), captions=tf.constant(TOKENS * 9))),
    ("data", lambda: tbnets.RetrievalMetrics({"images": ROWS})),
    ("data", lambda: tbnets.RetrievalMetrics([]).on_epoch_end(0)),
    ("background", lambda: tbnets.CCA(*sides(has_bias=True), background=-1)),
    ("text_branch", lambda: tbnets.CCA(*sides(), background=1.0)),
    ("text_encoder", lambda: tbnets.CCA(*sides(), None, WORDS).build(SHAPES)),
    ("output_dim", lambda: solve(dim=5)),
    ("batches", lambda: solve(image_ids=IDS + 100)),
    ("batches", lambda: solve(background=2.0)),
    ("batches", lambda: solve(background=2.0, candidates=ROWS[:0])),
    ("text features", lambda: solve(captions=np.ones_like(ROWS))),
    ("regularization", lambda: solve(regularization=0)),
    ("text features", lambda: cca.cholesky_factor([[NAN]], 0.5, "text")),
    ("export", lambda: network().export("never")),
    ("loss", lambda: judge().compile("sgd", loss="hinge")),
    ("region_branch", lambda: trees_built(region_dim=3)),
    ("regions", lambda: trees_built().embed_regions(ROWS)),
    ("regions", lambda: trees_built().embed_regions(["a dog"])),
]
LAYERS = [
    ("units", lambda: tbnets.TreeLSTM(0)),
    ("rate", lambda: tbnets.SeededDropout("0.5")),
    ("input_shape", lambda: tbnets.Branch((4,)).build((None, 3, 8))),
    ("vocabulary_size", lambda: tbnets.MeanOfWords(VOCABULARY)),
    ("vocabulary_size", lambda: tbnets.RecurrentEncoder("9")),
    ("batches", lambda: transform(ROWS)),
    ("batches", lambda: transform([])),
    ("batches", lambda: transform([ROWS, ROWS[:, :5]])),
    ("encoder", lambda: tbnets.CaptionReader(VOCABULARY)),
    ("output_dim", lambda: tbnets.CanonicalProjection(0)),
    ("stream", lambda: seeds.generator_of(0, "tail")),
]
LOSSES = [
    ("labels", lambda: LOSS(UNIT, UNIT)),
    ("labels", lambda: LOSS(UNIT, IDS[:3])),
    ("caption_image_ids", lambda: LOSS(UNIT, UNIT, IDS)),
    ("caption_image_ids", lambda: LOSS(UNIT, UNIT, IDS, IDS[:2])),
    ("image_ids", lambda: LOSS(UNIT, UNIT, IDS[:2], IDS)),
    ("image_ids", lambda: LOSS(UNIT, UNIT, IDS * 1.0, IDS)),
    ("image_ids", lambda: LOSS(UNIT, UNIT, EYE, IDS)),
    ("text_ids", lambda: LOSS(UNIT, UNIT, IDS, IDS, IDS[:2])),
    ("image_embeddings", lambda: LOSS(UNIT[None], UNIT, [1], IDS)),
    ("is_match", lambda: tbnets.logistic_loss([1.0, 2.0], [1, -1])),
    ("is_match", lambda: tbnets.logistic_loss([1.0, 2.0], [True])),
    ("logits", lambda: tbnets.logistic_loss(["a"], [True])),
    ("text_ids", lambda: tbnets.positive_masks([1, 2], [1, 2], [1])),
    ("image_ids", lambda: tbnets.positive_masks([[1]], [1])),
    ("image_ids", lambda: tbnets.positive_masks([1.0, 2.0], [1])),
    ("positive_mask", lambda: tbnets.hardest_negatives(SCORES, IDS, 2)),
    ("positive_mask", lambda: tbnets.hardest_negatives(UNIT, EYE, 2)),
]
DATA = [
    ("format", lambda: tbnets.read_captions("x.csv", "table", "train")),
    ("image_ids", lambda: tbnets.CaptionedImages("ab", "xy", [0, 1], "", "")),
    ("images", lambda: examples(images=ROWS * np.nan)),
    ("images_per_batch", lambda: tbnets.EpochBatches(examples(), "3", 1, 0)),
    ("image_bytes", lambda: tbnets.decode_images("dog.jpg", 224)),
    ("image_size", lambda: tbnets.decode_images(["dog.jpg"], (224, 224))),
    ("path", lambda: tbnets.load_saved_model("absent")),
    ("name", lambda: tbnets.zoo.load("flickr")),
    ("model", lambda: tbnets.zoo.open_model("")),
    ("vocabulary", lambda: export(network(built=True), VOCABULARY)),
]
TEXTS = [
    ("vocabulary", lambda: tbnets.Tokenizer("vocabulary.txt")),
    ("max_tokens", lambda: tbnets.Tokenizer(VOCABULARY, 2.5)),
    ("max_words", lambda: tbnets.Vocabulary.build(["a dog"], max_words=0.5)),
    ("words", lambda: tbnets.Vocabulary(("a", "dog"))),
    ("trees", lambda: tbnets.tree_arrays(TREE, VOCABULARY)),
    ("trees[0]", lambda: tbnets.tree_arrays(["(NN dog)"], VOCABULARY)),
    ("vocabulary", lambda: tbnets.tree_arrays([TREE], ["dog"])),
    ("num_terms", lambda: tbnets.TfidfFeatures("3")),
    ("fit", lambda: tbnets.TfidfFeatures().transform(["a dog"])),
    ("vectors", lambda: tbnets.MeanFeatures().fit(["a dog"])),
    ("vectors", lambda: tbnets.MeanFeatures().fit(["a dog"], "glove.txt")),
    ("vectors", lambda: tbnets.WordVectors(("a",), ROWS)),
    ("words", lambda: tbnets.read_word_vectors("glove.txt", "dog")),
    ("points", lambda: tbnets.HybridMixture(30).fit(ROWS)),
]
MEASURES = [
    ("image_embeddings", lambda: retrieve(images=RAGGED)),
    ("image_embeddings", lambda: retrieve(images=["a.jpg"] * 6)),
    ("image_embeddings", lambda: retrieve(images=UNIT * NAN)),
    ("image_embeddings", lambda: retrieve(images=UNIT[:, 0])),
    ("image_embeddings", lambda: retrieve(images=UNIT * 1e30)),
    ("image_embeddings", lambda: retrieve(images=UNIT * 1e39)),
    ("text_embeddings", lambda: retrieve(texts=UNIT * NAN)),
    ("text_embeddings", lambda: retrieve(texts=UNIT[:, :5])),
    ("text_embeddings", lambda: retrieve(texts=UNIT[:0], rows=[])),
    ("caption_to_image", lambda: retrieve(rows=RAGGED)),
    ("caption_to_image", lambda: retrieve(rows=IDS + 1)),
    ("caption_to_image", lambda: retrieve(rows=IDS - 1)),
    ("caption_to_image", lambda: retrieve(rows=IDS * 1.0)),
    ("caption_to_image", lambda: retrieve(rows=IDS[:3])),
    ("`positives` must", lambda: retrieve(rows=None)),
    ("`positives` must", lambda: retrieve(positives=EYE)),
    ("ranks", lambda: tbnets.bootstrap_interval([], np.mean)),
    ("statistic", lambda: bootstrap(1)),
    ("confidence", lambda: bootstrap(np.mean, confidence=95)),
    ("num_samples", lambda: bootstrap(np.mean, num_samples=0)),
    ("name", lambda: evaluate_protocol("coco", UNIT, UNIT, IDS)),
    ("image_embeddings", lambda: evaluate_protocol("coco_1k", UNIT, UNIT, IDS)),
    ("scores", lambda: localize(RAGGED)),
    ("texts", lambda: localize(texts=[-1])),
    ("types", lambda: localize(types=["people"])),
    ("proposals[0]", lambda: localize_one(proposals=[[[3, 0, 1, 1]]])),
    ("truth", lambda: localize_one(truth=[[3, 0, 1, 1]])),
    ("owners", lambda: localize_one(phrase_to_image=[1])),
    ("owners", lambda: localize_one(phrase_to_image=[0.0])),
    ("types", lambda: localize_one(types={"x": np.ones(2, bool)})),
    ("texts", lambda: score_tiles.exact_scores(UNIT, UNIT[:, :5])),
    ("images", lambda: score_tiles.exact_scores(UNIT * INF, UNIT)),
    ("scores", lambda: score_tiles.spread(of_matrix(np.ones((3, 3))))),
    ("scores", lambda: score_tiles.score_ranks(of_matrix([[NAN]]), [0])),
    ("caption_to_image", lambda: score_tiles.score_ranks(of_matrix(EYE), [9])),
    ("scores", lambda: level((9, 7))),
    ("scores", lambda: level((5, 9))),
    ("scores", lambda: level(one=NAN)),
    ("choice", lambda: choices.answers(SCORES, BOX * 6, "mean_box")),
    ("choice", lambda: checked_choice("mean_box", known=CANDIDATE_CHOICES)),
    ("scores", lambda: choices.answers(SCORES * NAN, BOX * 6, MEAN)),
    ("metrics", lambda: tbnets.format_table("metrics.json")),
    ("metrics", lambda: tbnets.format_table({"test": {"recall_sum": 1.0}})),
]
BUILT, READER = network(built=True), reader(built=True)
MEAN = choices.Choice("mean_box")
MINED = functools.partial(tbnets.hardest_negatives, SCORES, EYE)
FOUR = functools.partial(tbnets.Branch, (4,))
RECURRENT = functools.partial(tbnets.RecurrentEncoder, 9)
SIDES = functools.partial(tbnets.CCA, *sides())
TREES = functools.partial(trees().compile, "sgd", LOSS)
IN_BOX = functools.partial(find, boxes=BOX)
# What is called with one argument, the argument, and what it must not be.
VALUES = [
    (tbnets.TripletLoss, "margin", (-0.1, NAN, INF, None, "vse++")),
    (tbnets.TripletLoss, "num_negatives", (0, 2.5, INF)),
    (tbnets.TripletLoss, "distance", ("l1",)),
    (tbnets.TripletLoss, "reduction", ("max",)),
    (tbnets.TripletLoss, "negatives", ("semi",)),
    (tbnets.TripletLoss, "term_weights", ({"i2t": 1}, {"text_to_text": -1})),
    (tbnets.InfoNCELoss, "temperature", (0.0,)),
    (tbnets.InfoNCELoss, "term_weights", ({"i2t": 1},)),
    (MINED, "num_negatives", (0,)),
    (tbnets.Branch, "units", ((4.5,), (4, 0))),
    (FOUR, "batch_normalization", ("both",)),
    (tbnets.PairHead, "units", ("512",)),
    (RECURRENT, "cell", ("rnn",)),
    (RECURRENT, "units", (0,)),
    (RECURRENT, "pooling", ("sum",)),
    (tbnets.FeatureTransform, "steps", ("l2", ("log",), ("center", "l2"))),
    (compiled, "gradient_clip_norm", (0,)),
    (compiled, "structure_steps", (NAN,)),
    (compiled, "structure_end", ("x",)),
    (TREES, "phrase_weight", (-1,)),
    (TREES, "region_mean_weight", (-1,)),
    (SIDES, "power", (-1,)),
    (retrieve, "recall_at", (5, (), (0,), (1.5,))),
    (retrieve, "memory_limit_mb", (0,)),
    (with_positives, "positives", ([[0, 3]], [[-1, 0]], [[0.0, 1]], [0, 1])),
    (with_positives, "positives", (EYE[:3, :2], np.zeros((2, 3), bool))),
    (localize_one, "scores", ([[0, NAN, 0, 0]], [[0, 0]])),
    (localize_one, "scores", ([[0] * 4] * 2, lambda *_: np.zeros((2, 4)))),
    (localize_one, "texts", ([0, 1],)),
    (localize_one, "recall_at", ((0,),)),
    (boxes.check_boxes, "boxes", ([0, 0, 1, 1], [[0, 0, 1]], [["a", 0, 1, 1]])),
    (boxes.check_boxes, "boxes", ([[0, 0, NAN, 1]],)),
    (boxes.check_boxes, "boxes", ([[5, 0, 3, 2]], [[0, 5, 3, 2]])),
    (suppress, "scores", ([1, 2], [NAN])),
    (suppress, "iou_threshold", (1.5,)),
    (suppress, "limit", (-1,)),
    (level, "temperature", (0,)),
    (TOKENIZER, "captions", ("a dog",)),
    (tbnets.Vocabulary.build, "captions", ("a dog", (c for c in ["a dog"]))),
    (tbnets.read_tree, "text", ("a dog", ["(NN dog)"])),
    (examples, "captions", (RAGGED * 3,)),
    (examples, "caption_to_image", (IDS + 1, IDS[:3])),
    (BUILT.embed_images, "images", (ROWS[:, :5], ROWS[0])),
    (READER.embed_text, "captions", (["a dog"], TOKENS * 1.0, TOKENS > 0)),
    (READER.embed_text, "captions", (TOKENS + 100, -TOKENS)),
    (search, "queries", ("a dog", None, (one for one in ["a dog"]))),
    (search, "queries", ({"a dog": 1}, {"a dog"}, np.array("a dog"))),
    (search, "top", ("3", -1)),
    (search, "like", (None,)),
    (search, "images", (PHOTO,)),
    (IN_BOX, "top", (0,)),
    (IN_BOX, "choice", ("best",)),
    (IN_BOX, "choice_temperature", (0,)),
    (IN_BOX, "choice_area_exponent", (-1,)),
    (find, "boxes", ([1, 2, 3], RAGGED, [[100, 100, 200, 200]])),
]
MISUSES = [*MODELS, *LAYERS, *LOSSES, *DATA, *TEXTS, *MEASURES]
MISUSES += [
    (argument, functools.partial(call, **{argument: value}))
    for call, argument, values in VALUES
    for value in values
]


@pytest.mark.parametrize(
    "argument, misuse",
    MISUSES,
    ids=[f"{place}-{name}" for place, (name, _) in enumerate(MISUSES)],
)
def test_a_misuse_ends_on_what_to_change(argument, misuse):
    with pytest.raises(UserError) as caught:
        misuse()
    assert_about(caught.value, argument)
    # Python has arguments, the command line flags.
    assert "--" not in str(caught.value)
