"""What newcomers write in their first programs: one error each that helps.

Of each misuse stands here which argument its error must name. It says what
was expected and received in words of Python, and comes before anything long
is begun.
"""

import typing

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tbnets
from tbnets.errors import UserError
from tbnets.serving import finding

ROWS = np.random.default_rng(0).normal(size=(6, 8)).astype("f4")
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
IDS = np.arange(6)
EYE = np.eye(6, dtype=bool)
SCORES = UNIT @ UNIT.T
VOCABULARY = tbnets.Vocabulary.build(["a dog runs", "a cat sleeps"])
TOKENIZER = tbnets.Tokenizer(VOCABULARY)
TOKENS = np.full((6, 3), 2, np.int32)
RAGGED = [[1.0], [1.0, 2.0]]
BOX = [[0, 0, 4, 4]]
LOSS = tbnets.TripletLoss()
SHAPES = {"images": (None, 8), "captions": (None, 8)}
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
    finding.find_regions(Finder(), ["a dog"], PHOTO, **given)


def search(queries=("a dog",), images=UNIT, **given):
    finding.search(Finder(), queries, images, **given)


def retrieve(images=UNIT, texts=UNIT, rows=IDS, **given):
    tbnets.evaluate_retrieval(images, texts, rows, **given)


def localize(scores=((1.0,),), **given):
    count = len(scores)
    rest = [BOX], BOX * count, [0] * count
    tbnets.evaluate_localization(scores, *rest, **given)


def bootstrap(*given, **more):
    tbnets.bootstrap_interval([1, 2], *given, **more)


MODELS = [
    ("ranking_loss", lambda: network().compile("adam", "mse")),
    ("ranking_loss", lambda: network().compile("adam", tbnets.TripletLoss)),
    ("ranking_loss", lambda: network().compile("adam", {"margin": 0.2})),
    ("gradient_clip_norm", lambda: network().compile("adam", LOSS, "2")),
    ("metrics", lambda: network().compile("adam", LOSS, metrics=["mae"])),
    ("loss", lambda: network().compile("adam", LOSS, loss="mse")),
    ("image_branch", lambda: tbnets.EmbeddingNetwork(512, 512)),
    ("image_branch", lambda: tbnets.EmbeddingNetwork(tbnets.Branch, None)),
    ("text_encoder", lambda: network("gru")),
    ("text_encoder", lambda: network(VOCABULARY)),
    ("image_branch", lambda: tbnets.CCA(1, 2)),
    ("image_branch", lambda: tbnets.CCA(*branches()).build(SHAPES)),
    ("head", lambda: tbnets.SimilarityNetwork(*branches(), head=(512,))),
    ("inputs", lambda: network().build((None, 8))),
    ("images", lambda: network().embed_images(["dog.jpg"])),
    ("images", lambda: network(built=True).embed_images(ROWS[:, :5])),
    ("images", lambda: network(built=True).embed_images(ROWS[0])),
    ("captions", lambda: network().embed_text("a dog")),
    ("captions", lambda: reader().embed_text(["a dog"])),
    ("captions", lambda: reader().embed_text(TOKENS.astype("f4"))),
    ("captions", lambda: reader(built=True).embed_text(TOKENS + 100)),
    ("captions", lambda: reader(built=True).embed_text(-TOKENS)),
    ("inputs", lambda: network(built=True)({"images": ROWS})),
    ("x", lambda: fit(network(), x=examples())),
    ("y", lambda: fit(network(), with_x={"y": IDS})),
    ("sample_weight", lambda: fit(network(), with_x={"sample_weight": IDS})),
    ("class_weight", lambda: fit(network(), with_x={"class_weight": {0: 1.0}})),
    ("x", lambda: fit(network(), image_ids=IDS[:4])),
    ("x", lambda: fit(network(), **dict.fromkeys(["images"], ROWS[:0]))),
    ("x['images']", lambda: fit(network(), images=ROWS * np.nan)),
    ("x['images']", lambda: fit(network(), images=ROWS.tolist())),
    ("x['captions']", lambda: fit(network(), captions=np.array(["dog"] * 6))),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS + 100)),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS * 0.5)),
    ("x['captions']", lambda: fit(reader(), captions=tf.constant(TOKENS * 9))),
    ("x['image_ids']", lambda: fit(network(), image_ids=np.array([*"abcdef"]))),
    ("data", lambda: tbnets.RetrievalMetrics(3)),
    ("data", lambda: tbnets.RetrievalMetrics({"images": ROWS})),
    ("data", lambda: tbnets.RetrievalMetrics(iter([{"images": ROWS}]))),
    ("data", lambda: tbnets.RetrievalMetrics([]).on_epoch_end(0)),
]
LAYERS = [
    ("units", lambda: tbnets.Branch(512)),
    ("units", lambda: tbnets.Branch((4.5,))),
    ("units", lambda: tbnets.PairHead("512")),
    ("rate", lambda: tbnets.Branch((4, 4), dropout=50)),
    ("rate", lambda: tbnets.SeededDropout("0.5")),
    ("input_shape", lambda: tbnets.Branch((4,)).build((None, 3, 8))),
    ("input_shape", lambda: tbnets.MeanOfWords(9).build((None,))),
    ("input_shape", lambda: tbnets.TreeEncoder(9).build((None, 7))),
    ("channels", lambda: tbnets.SmallConvNet(32)),
    ("vocabulary_size", lambda: tbnets.MeanOfWords(VOCABULARY)),
    ("vocabulary_size", lambda: tbnets.RecurrentEncoder("9")),
    ("cell", lambda: tbnets.RecurrentEncoder(9, "rnn")),
    ("units", lambda: tbnets.RecurrentEncoder(9, units=0)),
    ("steps", lambda: tbnets.FeatureTransform("l2")),
    ("batches", lambda: transform(ROWS)),
    ("batches", lambda: transform([])),
    ("batches", lambda: transform([ROWS, ROWS[:, :5]])),
    ("encoder", lambda: tbnets.CaptionReader(VOCABULARY)),
    ("output_dim", lambda: tbnets.CanonicalProjection(0)),
]
LOSSES = [
    ("margin", lambda: tbnets.TripletLoss("vse++")),
    ("loss", lambda: tbnets.PRESETS["vse"]),
    ("term_weights", lambda: tbnets.TripletLoss(term_weights=[1, 1])),
    ("term_weights", lambda: tbnets.TripletLoss(term_weights={"i2t": 1})),
    ("labels", lambda: LOSS(UNIT, UNIT)),
    ("labels", lambda: LOSS(UNIT, IDS[:3])),
    ("caption_image_ids", lambda: LOSS(UNIT, UNIT, IDS)),
    ("image_ids", lambda: LOSS(UNIT, UNIT, IDS * 1.0, IDS)),
    ("image_ids", lambda: LOSS(UNIT, UNIT, EYE, IDS)),
    ("text_embeddings", lambda: LOSS(UNIT, UNIT[:, :5], IDS, IDS)),
    ("image_embeddings", lambda: LOSS(UNIT[None], UNIT, [1], IDS)),
    ("image_embeddings", lambda: LOSS(["a"] * 6, UNIT, IDS, IDS)),
    ("masks", lambda: LOSS.with_masks(UNIT, UNIT, EYE)),
    (
        "masks.image_to_text",
        lambda: LOSS.with_masks(UNIT, UNIT, [EYE * 1.0] * 3),
    ),
    ("is_match", lambda: tbnets.logistic_loss([1.0, 2.0], [1, -1])),
    ("is_match", lambda: tbnets.logistic_loss([1.0, 2.0], [True])),
    ("logits", lambda: tbnets.logistic_loss(["a"], [True])),
    ("text_ids", lambda: tbnets.positive_masks([1, 2], [1, 2], [1])),
    ("image_ids", lambda: tbnets.positive_masks([[1]], [1])),
    ("positive_mask", lambda: tbnets.hardest_negatives(SCORES, IDS, 2)),
    ("positive_mask", lambda: tbnets.hardest_negatives(UNIT, EYE, 2)),
    ("num_negatives", lambda: tbnets.hardest_negatives(SCORES, EYE, 0)),
    (
        "num_negatives",
        lambda: tbnets.hardest_negatives(SCORES, EYE, "2"),
    ),
    ("seed", lambda: tbnets.sample_pairs([1], [1], seed=1)),
]
DATA = [
    ("format", lambda: tbnets.read_captions("x.csv", "table", "train")),
    ("split", lambda: tbnets.read_captions("table", "x.csv", None)),
    ("path", lambda: tbnets.read_captions("table", None, "train")),
    ("images", lambda: tbnets.read_phrases("x.jsonl", "photos")),
    ("image_ids", lambda: tbnets.CaptionedImages("ab", "xy", [0, 1], "", "")),
    ("caption_to_image", lambda: examples(caption_to_image=IDS + 1)),
    ("caption_to_image", lambda: examples(caption_to_image=IDS[:3])),
    ("captions", lambda: examples(captions=["a dog"] * 6)),
    ("captions", lambda: examples(captions=RAGGED * 3)),
    ("images", lambda: examples(images=ROWS * np.nan)),
    ("examples", lambda: tbnets.EpochBatches({"images": ROWS}, 3, 1, 0)),
    ("images_per_batch", lambda: tbnets.EpochBatches(examples(), "3", 1, 0)),
    ("seed", lambda: tbnets.EpochBatches(examples(), 3, 1, None)),
    ("paths", lambda: tbnets.open_features(ROWS)),
    ("image_bytes", lambda: tbnets.decode_images("dog.jpg", 224)),
    ("image_size", lambda: tbnets.decode_images(["dog.jpg"], (224, 224))),
    ("path", lambda: tbnets.load_saved_model(None)),
    ("path", lambda: tbnets.load_saved_model("absent")),
    ("path", lambda: tbnets.open_index(None)),
    ("path", lambda: tbnets.IndexWriter(None, "my model", 3)),
    ("name", lambda: tbnets.zoo.load("flickr")),
    ("name_or_path", lambda: tbnets.zoo.open_model(None)),
    ("name_or_path", lambda: tbnets.zoo.open_model(b"flickr8k_photos")),
    ("model", lambda: tbnets.zoo.open_model("")),
    ("model", lambda: export(VOCABULARY, network())),
    ("vocabulary", lambda: export(reader(built=True), "vocabulary.txt")),
    ("vocabulary", lambda: export(network(built=True), VOCABULARY)),
    ("image_shape", lambda: export(network(), None, image_shape=8, text_dim=8)),
]
TEXTS = [
    ("captions", lambda: TOKENIZER("a dog")),
    ("captions", lambda: TOKENIZER([1, 2])),
    ("captions", lambda: TOKENIZER([["a", "dog"]])),
    ("captions", lambda: tbnets.split_words(None)),
    ("vocabulary", lambda: tbnets.Tokenizer("vocabulary.txt")),
    ("max_tokens", lambda: tbnets.Tokenizer(VOCABULARY, 2.5)),
    ("captions", lambda: tbnets.Vocabulary.build("a dog")),
    ("captions", lambda: tbnets.Vocabulary.build(c for c in ["a dog"])),
    ("max_words", lambda: tbnets.Vocabulary.build(["a dog"], max_words=0.5)),
    ("words", lambda: tbnets.Vocabulary(("a", "dog"))),
    ("text", lambda: tbnets.read_tree("a dog")),
    ("text", lambda: tbnets.read_tree(["(NN dog)"])),
    ("trees", lambda: tbnets.tree_arrays(TREE, VOCABULARY)),
    ("trees[0]", lambda: tbnets.tree_arrays(["(NN dog)"], VOCABULARY)),
    ("vocabulary", lambda: tbnets.tree_arrays([TREE], ["dog"])),
    ("arrays[0]", lambda: tbnets.TreeRows([TREE])),
    ("rows", lambda: tbnets.pack_trees(TOKENS)),
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
    ("image_embeddings", lambda: retrieve(images=UNIT * np.nan)),
    ("text_embeddings", lambda: retrieve(texts=UNIT[:, :5])),
    ("caption_to_image", lambda: retrieve(rows=RAGGED)),
    ("caption_to_image", lambda: retrieve(rows=IDS + 1)),
    ("caption_to_image", lambda: retrieve(rows=IDS * 1.0)),
    ("recall_at", lambda: retrieve(recall_at=5)),
    ("statistic", lambda: bootstrap(1)),
    ("confidence", lambda: bootstrap(np.mean, confidence=95)),
    ("num_samples", lambda: bootstrap(np.mean, num_samples=0)),
    ("scores", lambda: localize(RAGGED)),
    ("texts", lambda: localize(texts=[-1])),
    ("types", lambda: localize(types=["people"])),
    ("metrics", lambda: tbnets.format_table("metrics.json")),
    ("metrics", lambda: tbnets.format_table({"test": {"recall_sum": 1.0}})),
    ("top", lambda: search(top="3")),
    ("top", lambda: search(top=-1)),
    ("queries", lambda: search("a dog")),
    ("queries", lambda: search(None)),
    ("queries", lambda: search(one for one in ["a dog"])),
    ("like", lambda: search(like=None)),
    ("images", lambda: search(images=UNIT[:, :7])),
    ("images", lambda: search(images=UNIT * np.nan)),
    ("images", lambda: search(images=(one for one in UNIT))),
    ("images", lambda: search(images=PHOTO)),
    ("images", lambda: search(images={"a.jpg", "b.jpg"})),
    ("images", lambda: search(images={"a.jpg": PHOTO})),
    ("queries", lambda: search({"a dog": 1})),
    ("queries", lambda: search({"a dog"})),
    ("queries", lambda: search(np.array("a dog"))),
    ("like", lambda: search(like={"a.jpg"})),
    ("cache", lambda: search(cache=True)),
    ("top", lambda: find(top=0, boxes=BOX)),
    ("choice", lambda: find(choice="best", boxes=BOX)),
    ("choice_temperature", lambda: find(choice_temperature=0, boxes=BOX)),
    ("choice_area_exponent", lambda: find(choice_area_exponent=-1, boxes=BOX)),
    ("boxes", lambda: find(boxes=[1, 2, 3])),
    ("boxes", lambda: find(boxes="1,2,3,4")),
    ("boxes", lambda: find(boxes=RAGGED)),
    ("boxes", lambda: find(boxes=[[100, 100, 200, 200]])),
]
MISUSES = MODELS + LAYERS + LOSSES + DATA + TEXTS + MEASURES


@pytest.mark.parametrize(
    "argument, misuse",
    MISUSES,
    ids=[f"{place}-{name}" for place, (name, _) in enumerate(MISUSES)],
)
def test_a_misuse_ends_on_what_to_change(argument, misuse):
    with pytest.raises(UserError) as caught:
        misuse()
    text = str(caught.value)
    assert f"`{argument}` must " in text
    assert " Received: " in text
    assert "--" not in text  # Python has arguments, the command line flags.
