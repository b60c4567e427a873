"""What users write wrongly: each error is about the argument to change.

Beside each call or command is the argument that its error is about, or words of
its message. Commands train and write nothing.
"""

import functools
import math
import re
import typing

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tbnets
from tbnets import cli
from tbnets.errors import UserError
from tbnets.evaluation import boxes, score_tiles
from tbnets.evaluation.retrieval import evaluate_protocol
from tbnets.models import cca
from tbnets.serving.search import PhotoSearch
from tbnets.serving.served import Served
from tbnets.training import loop
from tests import saved_models, tiny, tiny_misuses
from tests.evaluation.test_score_tiles import of_matrix
from tests.features import tiny_cnn
from tests.refusals import assert_about

ROWS = np.random.default_rng(0).normal(size=(6, 8)).astype("f4")
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
IDS = np.arange(6)
EYE = np.eye(6, dtype=bool)
SCORES = UNIT @ UNIT.T
VOCABULARY = tbnets.Vocabulary.build(["a dog runs", "a cat sleeps"])
TOKENIZER = tbnets.Tokenizer(VOCABULARY)
TOKENS = np.full((6, 3), 2, np.int32)
NAN = math.nan
BOX = [[0, 0, 4, 4]]
LOSS = tbnets.TripletLoss()
SHAPES = {"images": (None, 8), "captions": (None, 8)}
TREE_SHAPES = {"images": (None, 5), "captions": (None, None, 6)}


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

    def inputs(self, name):
        return {}

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


def level(num_own=(5, 7), temperature=0.1, one=1):
    score_tiles.normalize(of_matrix(np.eye(9) * one), *num_own, temperature)


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


UNNAMED = {"images": ROWS, "captions": ROWS}


def dataset(batch):
    return tf.data.Dataset.from_tensors(batch)


def judge():
    return tbnets.SimilarityNetwork(*branches())


WORDS = tbnets.MeanOfWords(9, 5)
MODELS = [
    ("loss", lambda: network().compile("adam", "mse")),
    ("loss_weights", lambda: compiled(loss_weights=[1.0])),
    ("inputs", lambda: network().build((None, 8))),
    ("images", lambda: network().embed_images(["dog.jpg"])),
    ("captions", lambda: network().embed_text("a dog")),
    ("inputs", lambda: network(built=True)({"images": ROWS})),
    ("batch", lambda: fit(network(), x=dataset((ROWS, ROWS)))),
    ("batch", lambda: fit(network(), x=dataset(UNNAMED))),
    ("batch", lambda: network().test_step((ROWS, ROWS))),
    ("batch", lambda: judge().batch_loss(UNNAMED)),
    ("batch", lambda: trees_built().batch_loss(UNNAMED)),
    ("y", lambda: fit(network(), with_x={"y": IDS})),
    ("sample_weight", lambda: fit(network(), with_x={"sample_weight": IDS})),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS + 100)),
    ("x['captions']", lambda: fit(reader(), captions=TOKENS * 0.5)),
    ("x['captions']", lambda: fit(reader(), captions=tf.constant(TOKENS * 9))),
    ("data", lambda: tbnets.RetrievalMetrics({"images": ROWS})),
    ("text_branch", lambda: tbnets.CCA(*sides(), background=1.0)),
    ("text_encoder", lambda: tbnets.CCA(*sides(), None, WORDS).build(SHAPES)),
    ("output_dim", lambda: solve(dim=5)),
    ("data", lambda: tbnets.RetrievalMetrics([]).on_epoch_end(0)),
    ("types", lambda: localize(types={"people": [0]})),
    ("batches", lambda: solve(image_ids=IDS + 100)),
    ("batches", lambda: solve(background=2.0)),
    ("regularization", lambda: solve(regularization=0)),
    ("text features", lambda: cca.cholesky_factor([[NAN]], 0.5, "text")),
    ("export", lambda: network().export("never")),
]
LAYERS = [
    ("input_shape", lambda: tbnets.Branch((4,)).build((None, 3, 8))),
    ("vocabulary_size", lambda: tbnets.MeanOfWords(VOCABULARY)),
    ("batches", lambda: transform(ROWS)),
    ("batches", lambda: transform([])),
    ("batches", lambda: transform([ROWS, ROWS[:, :5]])),
]
LOSSES = [
    ("labels", lambda: LOSS(UNIT, IDS[:3])),
    ("caption_image_ids", lambda: LOSS(UNIT, UNIT, IDS, IDS[:2])),
    ("image_ids", lambda: LOSS(UNIT, UNIT, IDS[:2], IDS)),
    ("image_ids", lambda: LOSS(UNIT, UNIT, IDS * 1.0, IDS)),
    ("text_ids", lambda: LOSS(UNIT, UNIT, IDS, IDS, IDS[:2])),
    ("image_embeddings", lambda: LOSS(UNIT[None], UNIT, [1], IDS)),
    ("is_match", lambda: tbnets.logistic_loss([1.0, 2.0], [True])),
    ("positive_mask", lambda: tbnets.hardest_negatives(UNIT, EYE, 2)),
]
DATA = [
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
    ("words", lambda: tbnets.Vocabulary(("a", "dog"))),
    ("fit", lambda: tbnets.TfidfFeatures().transform(["a dog"])),
    ("vectors", lambda: tbnets.MeanFeatures().fit(["a dog"])),
    ("vectors", lambda: tbnets.WordVectors(("a",), ROWS)),
    ("words", lambda: tbnets.read_word_vectors("glove.txt", "dog")),
]
MEASURES = [
    ("image_embeddings", lambda: retrieve(images=UNIT * NAN)),
    ("image_embeddings", lambda: retrieve(images=UNIT[:, 0])),
    ("image_embeddings", lambda: retrieve(images=UNIT * 1e39)),
    ("text_embeddings", lambda: retrieve(texts=UNIT * NAN)),
    ("text_embeddings", lambda: retrieve(texts=UNIT[:, :5])),
    ("text_embeddings", lambda: retrieve(texts=UNIT[:0], rows=[])),
    ("caption_to_image", lambda: retrieve(rows=IDS + 1)),
    ("caption_to_image", lambda: retrieve(rows=IDS * 1.0)),
    ("caption_to_image", lambda: retrieve(rows=IDS[:3])),
    ("`positives` must", lambda: retrieve(rows=None)),
    ("`positives` must", lambda: retrieve(positives=EYE)),
    ("ranks", lambda: tbnets.bootstrap_interval([], np.mean)),
    ("name", lambda: evaluate_protocol("coco", UNIT, UNIT, IDS)),
    ("image_embeddings", lambda: evaluate_protocol("coco_1k", UNIT, UNIT, IDS)),
    ("proposals[0]", lambda: localize_one(proposals=[[[3, 0, 1, 1]]])),
    ("truth", lambda: localize_one(truth=[[3, 0, 1, 1]])),
    ("owners", lambda: localize_one(phrase_to_image=[1])),
    ("texts", lambda: score_tiles.exact_scores(UNIT, UNIT[:, :5])),
    ("scores", lambda: score_tiles.score_ranks(of_matrix([[NAN]]), [0])),
    ("caption_to_image", lambda: score_tiles.score_ranks(of_matrix(EYE), [9])),
    ("scores", lambda: level(one=NAN)),
    ("scores", lambda: boxes.answers(SCORES * NAN, BOX * 6, MEAN)),
]
BUILT, READER = network(built=True), reader(built=True)
MEAN = boxes.Choice("mean_box")
MINED = functools.partial(tbnets.hardest_negatives, SCORES, EYE)
# What is called with one argument, the argument, and what it must not be.
VALUES = [
    (tbnets.TripletLoss, "margin", (-0.1, NAN, "vse++")),
    (tbnets.TripletLoss, "num_negatives", (0, 2.5)),
    (tbnets.TripletLoss, "term_weights", ({"i2t": 1}, {"text_to_text": -1})),
    (tbnets.InfoNCELoss, "temperature", (0.0,)),
    (MINED, "num_negatives", (0,)),
    (tbnets.Branch, "units", ((4.5,), (4, 0))),
    (tbnets.FeatureTransform, "steps", ("l2", ("log",), ("center", "l2"))),
    (with_positives, "positives", ([[0, 3]], [[-1, 0]])),
    (with_positives, "positives", (EYE[:3, :2], np.zeros((2, 3), bool))),
    (localize_one, "scores", ([[0, NAN, 0, 0]], [[0, 0]])),
    (localize_one, "scores", ([[0] * 4] * 2, lambda *_: np.zeros((2, 4)))),
    (boxes.check_boxes, "boxes", ([[0, 0, 1]],)),
    (boxes.check_boxes, "boxes", ([[0, 0, NAN, 1]],)),
    (boxes.check_boxes, "boxes", ([[5, 0, 3, 2]],)),
    (level, "temperature", (0,)),
    (TOKENIZER, "captions", ("a dog",)),
    (tbnets.Vocabulary.build, "captions", ("a dog",)),
    (tbnets.read_tree, "text", ("a dog", ["(NN dog)"])),
    (examples, "caption_to_image", (IDS + 1, IDS[:3])),
    (READER.embed_text, "captions", (["a dog"], TOKENS * 1.0)),
    (READER.embed_text, "captions", (TOKENS + 100, -TOKENS)),
    (search, "queries", ("a dog", None)),
    (search, "queries", ({"a dog": 1},)),
    (search, "top", ("3", -1)),
    (search, "like", (None,)),
    (search, "images", (PHOTO,)),
    (find, "boxes", ([1, 2, 3], [[100, 100, 200, 200]])),
]
CALLS = [*MODELS, *LAYERS, *LOSSES, *DATA, *TEXTS, *MEASURES]
CALLS += [
    (argument, functools.partial(call, **{argument: value}))
    for call, argument, values in VALUES
    for value in values
]

# Flags of a training on pixels, on a table of captions, and on scenes.
PIXELS = "-image_features --image_encoder=small --image_size=8 "
SCENES = "-captions --scenes={root}/"
OWN = "-image_features --images={root}/whole "
CNN = OWN + "--image_encoder={cnn} --fine_tune --cnn_weights="
NAMED = "-image_features --captions={root}/"
TABLE = "--captions={root}/"
TEXTS = "-word_dim --text_encoder=features --text_features="
WEIGHTS = (
    "--image_to_text_weight=0 --text_to_image_weight=0 "
    "--text_to_text_weight=0 --image_to_image_weight=0"
)

TRAIN = [
    # Values that a flag does not have.
    ("--epochz=3", "Did you mean: epochs"),
    ("--loss=hinge", "--loss"),
    ("--flagfile={root}/absent.flags", "absent.flags"),
    ("runs/first", "runs/first"),
    ("--epochs", "--epochs"),
    # What is out of its range.
    ("--seed=-1", "--seed"),
    (WEIGHTS, "--image_to_text_weight"),
    ("--min_count=1000", "captions"),
    ("--image_units=8,0", "--image_units"),
    (SCENES + "s --num_scenes=4,2,-1", "--num_scenes"),
    (SCENES + "s --num_scenes=4,2", "--num_scenes"),
    (SCENES + "s --num_scenes=0,0,0", "num_train"),
    # What contradicts.
    ("--decay_epochs=5", "--decay_epochs"),
    ("--images={root}/photos", "--images"),
    ("--noexport --example_query=a", "--example_query"),
    ("--export --cnn_weights=w.h5", "--cnn_weights"),
    # Folders of runs.
    ("--run_dir=", "--run_dir"),
    ("--run_dir={root}/photos", "--run_dir"),
    ("--run_dir={root}/run", "--run_dir"),
    ("--resume", "--resume"),
    ("--resume --run_dir={root}/run --margin=1", "--resume"),
    ("--resume --run_dir={root}/broken", "last.npz must be a complete tbnets"),
    # Captions.
    ("--captions=absent", "--captions"),
    (TABLE + "train.csv", "--dev_split"),
    (TABLE + "plain.csv", "--captions"),
    (
        NAMED + "drawn.csv --images={root}/whole --train_split=trian",
        "--train_split",
    ),
    (TABLE + "columns.csv", "columns.csv:3"),
    ("--train_split=trian", "--train_split"),
    # Features and photos.
    ("--image_features=absent", "--image_features"),
    ("--image_features={{split}}_no.npy", "--image_features"),
    ("--image_features={{split}}_two.npy", "--image_features"),
    ("--image_features={{split}}_other.npy", "image_ids"),
    (TEXTS, "--text_features"),
    (PIXELS + "--images=nowhere", "--images"),
    (PIXELS + "--images={root}/photos", "--images"),
    (OWN + "--image_encoder=VGG61 --fine_tune", "--image_encoder"),
    (CNN.replace("{cnn}", "SqueezeNet") + "imagenet", "--cnn_weights"),
    (CNN.replace("{cnn}", tiny_cnn.NAME) + "absent.h5", "--cnn_weights"),
    # Photos of one's own.
    (NAMED + "train.csv --images={root}/whole", "first 'a.png'"),
    (NAMED + "train.csv --images={root}/empty", "--images"),
    (NAMED + "train.csv --images={root}/photos", "--dev_split"),
    (SCENES + "photos", "--scenes"),
]

MATCHES = "--image_embeddings={root}/i.npy --text_embeddings={root}/t.npy "
ARRAYS = MATCHES + "--caption_to_image={root}/rows.npy "
PAIRS = MATCHES + "--positives={root}/rows.npy "
RUN = "--run_dir={root}/run "
COMBINED = "--combine_with={root}/run,{root}/run "
BOTH = (
    "--data_root={root}/data --captions=. "
    "--image_features={{split}}_ims.npy --text_features={{split}}_texts.npy "
)
EVALUATE = [
    ("", "--run_dir"),
    ("--run_dir={root}/photos", "--run_dir"),
    ("--run_dir={root}/broken", "best.npz must be a complete tbnets"),
    (RUN + "--split=tset", "split"),
    (RUN + "--checkpoint=first", "--checkpoint"),
    (RUN + "--text_embeddings=t.npy", "--text_embeddings"),
    (RUN + "--region_phrase_ranking", "--region_phrase_ranking"),
    (RUN + "--query_bank=test", "--query_bank"),
    (RUN + "--split=val --query_bank=dev", "--query_bank"),
    (RUN + "--combine_weight=0.5", "--combine_weight"),
    (RUN + COMBINED + "--combine_weight=0,1,1", "--combine_weight"),
    ("--run_dir=absent --map=absent/map.png", "--map"),
    ("--map_images=9", "--run_dir"),
    ("--image_embeddings=a.npy", "--image_embeddings"),
    (MATCHES, "--image_embeddings"),
    (ARRAYS + "--split=dev", "--split"),
    (ARRAYS + "--json={root}/absent/m.json", "--json"),
    (ARRAYS + "--protocol=coco_5k", "image_embeddings"),
    (ARRAYS + "--image_embeddings={root}/no.npy", "path"),
    (ARRAYS + "--image_embeddings={root}/wide.npy", "text_embeddings"),
    (ARRAYS + "--text_embeddings={root}/own.csv", "own.csv"),
    (PAIRS, "positives"),
    (ARRAYS + "--positives={root}/rows.npy", "--image_embeddings"),
    (PAIRS + "--protocol=coco_5k", "--image_embeddings"),
    ("--image_features=a.npy", "--image_features"),
    ("--model=clip --captions=a.csv", "--model"),
    ("--model=clip --images=a --prompt=b", "--prompt"),
    ("--model=clip --run_dir={root}/run", "--model"),
    ("--image_features=a --text_features=b", "--image_features"),
    (BOTH + "--text_features=no.npy", "--text_features"),
    (BOTH + "--text_features={{split}}_ims.npy", "image_ids"),
]

EXPORT = [
    ("", "--run_dir"),
    ("--model=scenes_embedding", "--model"),
    ("--model=absent --output={root}/x/1", "--model"),
    ("--model=a --output=b --max_pixels=9", "--max_pixels"),
    ("--run_dir=a --model=b --output=c", "--run_dir"),
    ("--run_dir=a --signatures=b", "--signatures"),
    (RUN + "--cnn_weights=w.h5", "--cnn_weights"),
]

MODEL = "--model={root}/run "
FEATURES = MODEL + "--image_features={root}/"
QUERY = [
    ("", "tbnets query"),
    (MODEL + "dog", "tbnets query"),
    ("--model={root}/photos {root}/photos dog", "path"),
    ("--model={root}/half {root}/photos dog", "path"),
    ("--model=flickr {root}/photos dog", "--model"),
    (MODEL + "{root}/photos dog", "--image_features"),
    (MODEL + "{root}/photos --top=0 dog", "--top"),
    (FEATURES + "no.npy dog", "path"),
    (FEATURES + "wide.npy dog", "images"),
    (FEATURES + "i.npy --montage=m.png dog", "--montage"),
    (FEATURES + "i.npy --html=m.html dog", "--html"),
    ("--images={root}/photos --html={root}/absent/m.html dog", "--html"),
    (MODEL + "--image=a --captions={root}/no.txt", "path"),
    (MODEL + "--image=a --captions={root}/i.npy", "i.npy:1"),
]

ONE_PHOTO = "{root}/photos/a.png red "
LOCALIZE = [
    (ONE_PHOTO + "--choice_area_exponent=1", "--choice_area_exponent"),
    (ONE_PHOTO + "--choice_temperature=0.2", "--choice_temperature"),
    (
        ONE_PHOTO + "--choice=mean_box --choice_temperature=0",
        "--choice_temperature",
    ),
    ("{root}/photos/a.png", "tbnets localize"),
    (ONE_PHOTO + "--json={root}/none/a.json", "--json"),
    (ONE_PHOTO + "--model={root}/none", "--model"),
    (ONE_PHOTO + "--model=scenes_embedding", "--model"),
]
EXTRACTED = "--output={root}/store --images={root}/"
EXTRACT = [
    (EXTRACTED + "absent", "--images"),
    (EXTRACTED + f"whole --cnn={tiny_cnn.NAME} --layers=fc7", "--layers"),
    (EXTRACTED + "whole --cnn_weights=absent.h5", "--cnn_weights"),
]
SCENES_FLAGS = [
    ("--folder={root}/s --clutter=2", "--clutter"),
    ("--folder={root}/photos", "--folder"),
    ("--folder={root}/s stray", "stray"),
    ("--folder=", "--folder"),
    ("--folder={root}/s --num_train=0 --num_dev=0 --num_test=0", "--num_train"),
]
LITERT = "--model=scenes_embedding --output={root}/x "
EXPORT += [
    (LITERT + "--litert=float16 --half_precision", "--half_precision"),
    (LITERT + "--litert=float16 --serving", "--serving"),
    (LITERT + "--images=photos", "--images"),
]
COMMANDS = [
    (tool, *row)
    for tool, rows in (
        ("train", TRAIN),
        ("evaluate", EVALUATE),
        ("export", EXPORT),
        ("query", QUERY),
        ("localize", LOCALIZE),
        ("extract_image_features", EXTRACT),
        ("make_scenes", SCENES_FLAGS),
        ("ask", [("", "ask"), ("find red", "ask")]),
        ("demo", [("a b", "tbnets demo"), ("--port=70000", "--port")]),
    )
    for row in rows
]


@pytest.fixture(scope="module", autouse=True)
def models_loaded_once():
    """Loads the SavedModel of each folder once for all misuses."""
    with saved_models.loaded_once(), tiny_cnn.known():
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of data, runs and files to be mistaken for each other."""
    root = tmp_path_factory.mktemp("misuses")
    tiny_misuses.write(root)
    return root


def line_of(tool, misuse, root):
    """Returns the words of a misuse; `-name` leaves a good flag out."""
    words = misuse.format(root=root).split()
    if tool != "train":
        return words
    good = tiny.arguments(root / "data", root / "new" / "run")
    if "--resume" in words and len(words) > 1:
        good = {}  # The run's own flags.
    for word in [word for word in words if re.fullmatch(r"-\w+", word)]:
        words.remove(word)
        good.pop(word[1:])
    return [*(f"--{key}={value}" for key, value in good.items()), *words]


def changes(root):
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def run_command(tool, misuse, root):
    cli.call(tool, line_of(tool, misuse, root))


def call_library(call, root):
    try:
        call()
    except UserError as error:  # Python has arguments, commands have flags.
        assert "--" not in str(error)
        raise


MISUSES = [
    (name, functools.partial(call_library, call)) for name, call in CALLS
]
MISUSES += [
    (named, functools.partial(run_command, tool, misuse))
    for tool, misuse, named in COMMANDS
]


@pytest.mark.parametrize(
    "argument, misuse",
    MISUSES,
    ids=[f"{place}-{name}" for place, (name, _) in enumerate(MISUSES)],
)
def test_misuse_raises_an_error_about_its_argument_and_writes_nothing(
    root, argument, misuse, monkeypatch
):
    monkeypatch.setattr(loop, "make_reproducible", lambda: None)
    before = changes(root)
    with pytest.raises(UserError) as caught:
        misuse(root)
    assert_about(caught.value, argument)
    assert changes(root) == before
