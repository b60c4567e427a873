"""Runs the Python blocks of each page in order, in one namespace per page."""

import functools
import os
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.cli.serve import serving
from tbnets.extras.server.models import Models
from tbnets.features import fisher
from tests import page_files
from tests.features.test_regions import vgg_like

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
PAGES.append(ROOT / "model_zoo" / "README.md")
BLOCKS = {
    path.relative_to(ROOT).as_posix(): found
    for path in PAGES
    if (found := FENCED.findall(path.read_text("utf-8")))
}
SERVER, SERVING = "docs/local_server.md", "docs/serving.md"
LIBRARY = "docs/library.md"
NETWORK = "docs/bring_your_network.md"
REGIONS, ZOO = "docs/regions.md", "model_zoo/README.md"
SCALE = "docs/scale.md"
FRESH = "# In a fresh process."
"""Begins a block with names of its own. A process of its own takes seconds."""
REPLACED = {
    # The ports of the pages may be in use.
    (SERVING, "localhost:8500"): lambda request: (
        f"localhost:{request.getfixturevalue('ports')[0]}"
    ),
    (SERVER, "localhost:8501"): lambda request: (
        f"localhost:{request.getfixturevalue('ports')[1]}"
    ),
    # Further epochs would repeat the first one.
    (LIBRARY, "batch_size=12, epochs=5"): "batch_size=12",
    (LIBRARY, "fit(batches, epochs=5"): "fit(batches, epochs=1",
    (LIBRARY, "batch_size=12, epochs=6"): "batch_size=12, epochs=3",
    # Small pixels and a small network take less time.
    (NETWORK, "96"): "32",
    (NETWORK, "keras.applications.MobileNetV3Small"): "small_application",
    (NETWORK, "keras.applications.MobileNetV2"): "small_application",
    # Random weights and a small photo give features of equal size, without
    # the download of VGG.
    (REGIONS, '"imagenet", image_size=448'): "None, image_size=64",
    (REGIONS, "EfficientNetLite2"): "EfficientNetLite0",
    (REGIONS, 'build_cnn("VGG16", "imagenet")'): "vgg_like()",
    # By default, Beam downloads another runner.
    (
        SCALE,
        "Pipeline()",
    ): 'Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")',
    # Phrases of one scene take less time than of four.
    ("docs/localization.md", "[3, 12, 54, 131]"): "[3]",
    # 2500 scenes take half a minute, and /tmp is shared.
    ("docs/scenes.md", '"/tmp/scenes"'): '"few"',
    ("docs/scenes.md", "num_train=2000"): "2, 1, 1",
    # Other pages load the first model, too. The second one is smaller.
    ("docs/zoo.md", '"entities_localization"'): '"scenes_localization"',
    ("docs/zoo.md", '"flickr8k_photos"'): '"scenes_embedding"',
    # The name of a model with the method.
    (
        ZOO,
        'load("NAME")\nmodel.search',
    ): 'load("flickr8k_photos")\nmodel.search',
    (
        ZOO,
        'load("NAME")\nmodel.find',
    ): 'load("scenes_localization")\nmodel.find',
}
"""(page, code that needs more than the package) -> replacement."""
NEEDS = {
    SERVER: "tensorflow_serving",
    SERVING: "tensorflow_serving",
    "docs/localization.md": "cv2",
    "docs/text_features.md": "sklearn",
    "docs/zoo.md": "cv2",
    SCALE: "apache_beam lancedb",
    ZOO: "cv2",
}
"""Page -> the packages that it requires; without them the test is skipped."""


def unit_rows(*shape):
    rows = np.random.default_rng(0).normal(size=shape).astype("float32")
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def embeddings():
    owners = np.repeat(np.arange(4), 2)
    rows = {"images": unit_rows(4, 8), "captions": unit_rows(8, 8)}
    return {**rows, "caption_to_image": owners}


def scored_phrases():
    dataset = f"{page_files.SCENES}/dataset.json"
    images = tbnets.read_captions(dataset, "test")
    phrases = tbnets.read_phrases(page_files.SCENES, images)
    boxes = page_files.BOXES
    return {
        "phrases": phrases,
        "proposals": [boxes] * images.num_images,
        "scores": unit_rows(phrases.num_phrases, len(boxes)),
        "region_embeddings": unit_rows(phrases.phrase_to_chain.max() + 1, 4),
        "phrase_embeddings": unit_rows(phrases.phrase_to_text.max() + 1, 4),
    }


def network():
    vocabulary = tbnets.Vocabulary.build(["a dog", "a cat"])
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((4,)),
        tbnets.Branch((4,)),
        text_encoder=tbnets.MeanOfWords(vocabulary.size),
    )
    network.embed_images(unit_rows(1, 512))
    network.embed_text(tbnets.Tokenizer(vocabulary)(["a dog"]))
    return {"network": network, "vocabulary": vocabulary}


def small_application(include_top, pooling, weights, input_shape, alpha=1):
    """Returns a network like those of `keras.applications`, with few layers."""
    assert not include_top and pooling == "avg" and weights is None
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(8, 3, 2),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )


def trees():
    vocabulary = tbnets.Vocabulary.build(["a red dog"])
    tree = tbnets.read_tree("(NP (DT a) (JJ red) (NN dog))")
    rows = tbnets.TreeRows(tbnets.tree_arrays([tree], vocabulary)).batch([0])
    return {"vocabulary": vocabulary, "rows": rows}


def regions():
    image_bytes = pathlib.Path(page_files.PHOTO).read_bytes()
    boxes = page_files.BOXES
    return {"boxes": boxes, "image_bytes": image_bytes, "vgg_like": vgg_like}


GIVEN = {
    "docs/losses.md": lambda: {"loss": tbnets.TripletLoss()},
    "docs/evaluation.md": lambda: {**embeddings(), **scored_phrases()},
    NETWORK: lambda: {"small_application": small_application},
    REGIONS: regions,
    SERVING: network,
    "docs/trees.md": trees,
}
"""Page -> function that returns the names that its blocks use."""


@pytest.fixture(scope="module")
def ports():
    """Returns the gRPC and REST ports of a server with a zoo model."""
    name = "flickr8k_photos"
    with serving(Models({name: tbnets.zoo.folder() / name})) as ports:
        yield ports


def programs(page, request=None):
    """Returns the blocks of a page with their replacements."""
    blocks = "\0".join(BLOCKS[page])
    for (where, old), new in REPLACED.items():
        if where == page:
            new = new(request) if callable(new) else new
            blocks = blocks.replace(old, new)
    return blocks.split("\0")


@pytest.fixture(scope="module")
def run(request, tmp_path_factory, module_eagerly):
    """Returns a function that runs a page, once, and returns its names."""

    @functools.cache
    def run(page):
        for package in NEEDS.get(page, "").split():
            pytest.importorskip(package)
        names = {"__name__": "page", **GIVEN.get(page, dict)()}
        for number, block in enumerate(programs(page, request)):
            own = {"__name__": "page"} if block.startswith(FRESH) else names
            exec(compile(block, f"{page}, block {number}", "exec"), own)
        return names

    load = functools.cache(tf.saved_model.load)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("pages"))
        # Each model is loaded once for all pages.
        patch.setattr(
            tf.saved_model, "load", lambda path: load(os.path.realpath(path))
        )
        # A page replaces this function.
        patch.setattr(fisher, "gradient_terms", fisher.gradient_terms)
        page_files.write_all()
        yield run


@pytest.mark.parametrize("page", BLOCKS)
def test_blocks_run(page, run):
    run(page)


def test_a_network_of_the_library_page_learns_and_is_served(run):
    names = run(LIBRARY)
    # Chance: 1 image of 12.
    assert names["metrics"]["text_to_image/recall_at_1"] > 0.5
    owners = names["caption_to_image"][names["indices"].numpy()]
    assert names["valid"].numpy().all()
    assert (owners != np.arange(12)[:, None]).all()
    assert type(names["other"].image_branch) is names["Residual"]
    assert isinstance(names["other"].loss, tbnets.TripletLoss)
    wanted = names["images"][:2] @ names["texts"][[0, 34]].T
    captions = [names["captions"][row] for row in (0, 34)]
    rows = names["image_features"][:2]
    found = names["served"].similarity(rows, captions)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_loss_of_the_page_trains_any_network(run):
    network = keras.Sequential([keras.layers.UnitNormalization()])
    network.compile(loss=run("docs/losses.md")["of_labels"])
    labels = np.array([0, 0, 1, 1])
    # Rows with equal labels are equal, and the two labels are opposite.
    rows = np.array([[1.0], [1], [-1], [-1]], "float32")
    assert network.evaluate(rows, labels, verbose=0) == 0
    assert network.evaluate(rows[[0, 2, 1, 3]], labels, verbose=0) > 0


def test_the_database_of_the_page_answers_like_the_index(run):
    names, query = run(SCALE), "a dog in the snow"
    index = tbnets.open_index("photos.index")
    [answers] = names["model"].search([query], index, top=10)
    wanted = [pathlib.Path(answer.image).name for answer in answers]
    assert [row["id"] for row in names["best"]] == wanted


def test_the_exported_run_reads_sentences_as_they_are_stored(run):
    names = run("docs/text_features.md")
    products = (names["raw"] * names["stored"]).sum(axis=1)
    np.testing.assert_allclose(products, 1, atol=1e-5)
