"""Types of the names in docstring examples, and calls of served models.

`mypy` and `basedpyright`, without arguments, read this program in the clone's
folder. test_docstring_examples.py appends the examples, so that mypy checks the
signature of every public name. A line that ends in `type: ignore` is wrong on
purpose, and both checkers report it if it is right.
"""

# ruff: noqa: F401, F821

import pathlib

import keras
import numpy as np
import tensorflow as tf

import tbnets
from tbnets.serving.served import Served

captions: list[str]
caption_to_image: np.ndarray
vocabulary: tbnets.Vocabulary
word_ids: np.ndarray
image_features: np.ndarray
text_features: np.ndarray
pairs: dict[str, np.ndarray]
others: dict[str, np.ndarray]
image_ids: np.ndarray
caption_image_ids: np.ndarray
vectors: tbnets.WordVectors
words_of_all_splits: tuple[str, ...]
arrays: list[np.ndarray]
rows: np.ndarray
table: tf.Tensor
examples: tbnets.Examples
batches: tbnets.EpochBatches
network: tbnets.EmbeddingNetwork
images: np.ndarray
texts: np.ndarray
image_embeddings: np.ndarray
text_embeddings: np.ndarray
model: Served


def served_models(photo: bytes) -> None:
    """Exports, loads, searches, finds."""
    folder: pathlib.Path = tbnets.export_saved_model(
        network, vocabulary, "served/1", image_shape=(5,), half_precision=True
    )
    served = tbnets.load_saved_model(folder)
    cosines: np.ndarray = served.similarity(images, ["a red dog"])
    print(cosines.max(), served.has("embed_text"), served.vocabulary)
    names: list[str] = tbnets.zoo.names()
    sizes = {told.name: told.size for told in tbnets.zoo.describe()}
    model = tbnets.zoo.load("flickr8k_photos")
    like = model.search(images="photos", like=["dog.jpg", photo], cache=False)
    print(sizes[names[0]], like)
    for answers in model.search(["a dog", "a cat"], "photos", top=3):
        for answer in answers:
            print(answer.image, round(answer.similarity, 3), answer.is_doubtful)
    rows: np.ndarray = model.embed_images(
        [photo, "a.jpg", pathlib.Path("b.jpg")]
    )
    print(model.compare(rows, model.embed_text(["a dog"])).shape)
    localizer = tbnets.zoo.open_model("scenes_localization", trust=False)
    [found] = localizer.find(["a ball"], photo, boxes=[[0, 0, 9, 9]])
    for box, cosine in found:
        print(box.tolist(), cosine)
    print(localizer.localize(["a ball"], "a.jpg", localizer.propose("a.jpg")))
    client = tbnets.Client("http://localhost", "flickr8k_photos", timeout=9)
    print(client.search(["a dog"], "photos"))


def wrong() -> None:
    """Calls that no checker lets pass."""
    tbnets.Branch(units="2048")  # type: ignore
    tbnets.TripletLoss(margin="0.2")  # type: ignore
    print(tbnets.EmbedingNetwork)  # type: ignore
    network.compile("adam", "mse")  # type: ignore
    network.embed_text("a red dog", training="yes")  # type: ignore
    vocabulary.lod("vocabulary.txt")  # type: ignore
    tbnets.zoo.load("flickr8k").serch(["a dog"], "photos")  # type: ignore
    print(vocabulary.wrds)  # type: ignore
    tbnets.evaluate_retrieval(images, texts, rows, recall_at=5)  # type: ignore
    print(tbnets.read_tree("(NN dog)").word)  # type: ignore
