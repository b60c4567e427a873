"""Exports SavedModels again, and compares the outputs before and after."""

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.photo_features import RANDOM
from tbnets.serving.export import write_saved_model
from tbnets.serving.inputs import IMAGE_BYTES, TreeReader, is_trees
from tbnets.serving.protocol import example_rows
from tbnets.serving.served import load_saved_model
from tbnets.tasks import registry
from tbnets.tasks.builders import build_network
from tbnets.tasks.localization import endpoints_of_phrases
from tbnets.tasks.photo_readers import start_at_photo
from tbnets.tasks.trained import open_trained, sizes_of
from tbnets.text.trees import read_tree
from zoo_making.served import branch_endpoints

TOLERANCE = 1e-6
"""Maximum difference of outputs."""
_QUESTIONS = 4


def export_again(source, path):
    """Exports a SavedModel again from its own weights; needs no run folder.

    Returns `path` and the largest difference between the outputs of both
    models. Weights are matched by name, which fails in Keras 2.
    """
    trained = open_trained(str(source), argument="source")
    before, settings = load_saved_model(source), trained.settings
    # A network for whole photos may localize phrases by features of regions.
    localizes = "localize" in before.signatures
    if settings.image_encoder != "features":
        weights = "imagenet" if localizes else RANDOM
        settings = settings.replace(cnn_weights=weights)
    elif before.takes_photos:
        settings = start_at_photo(settings, "imagenet")
    fitted = sizes_of(before.metadata) | trained.fitted
    task = registry.open_task(settings)
    network = build_network(settings, fitted)
    trained.put_into(network)
    made = endpoints_of_phrases if localizes else branch_endpoints
    path = write_saved_model(
        made(task, network, fitted),
        path,
        metadata=before.metadata["metadata"],
        half_precision=any(x.dtype == np.float16 for _, x in trained.weights),
    )
    return path, _compare(before.signatures, load_saved_model(path))


def _compare(before, after):
    generator = np.random.default_rng(0)
    differences = {}
    for name in sorted(before.keys() - {"serving_default"}):
        inputs = {
            spec.name: tf.constant(_question(spec, after, generator))
            for spec in before[name].structured_input_signature[1].values()
        }
        differences[name] = difference(before, after.signatures, name, inputs)
    worst = max(differences, key=differences.get)
    if differences[worst] > TOLERANCE:
        raise InputError(
            "source",
            "have equal outputs before and after",
            f"{worst}, whose outputs differ by {differences[worst]:.1e}",
            "More than the exporter has changed: compare by hand.",
        )
    return differences[worst]


def difference(first, second, name, inputs):
    """Returns the largest output difference, or inf if strings differ."""
    expected, outputs = first[name](**inputs), second[name](**inputs)
    worst = 0.0
    for key in expected:
        pair = np.asarray(expected[key]), np.asarray(outputs[key])
        if pair[0].dtype.kind != "f" or pair[0].shape != pair[1].shape:
            differs = 0.0 if np.array_equal(*pair) else np.inf
        else:
            differs = np.abs(pair[0] - pair[1]).max(initial=0)
        worst = max(worst, float(np.nan_to_num(differs, nan=np.inf)))
    return worst


def _question(spec, model, generator):
    is_text = spec.dtype == tf.string and spec.name != IMAGE_BYTES
    if not (is_text or is_trees(spec)):
        return example_rows(spec, _QUESTIONS)
    words = generator.choice(model.vocabulary.words[1:], (_QUESTIONS, 7))
    captions = [" ".join(row[: 1 + 2 * i]) for i, row in enumerate(words)]
    if is_text:
        return np.array([caption.encode() for caption in captions])
    trees = [f"(S (NP {text}) (VP (NP {text})))" for text in captions]
    return TreeReader(model.vocabulary).read(map(read_tree, trees))
