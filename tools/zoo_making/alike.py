"""Exports models again, and compares the outputs."""

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.serving.export import write_saved_model
from tbnets.serving.inputs import TreeReader
from tbnets.serving.served import load_saved_model
from tbnets.tasks import registry
from tbnets.tasks.trained import settings_of_model, sizes_of
from tbnets.text.trees import read_tree

TOLERANCE = 1e-6
"""Maximum difference of outputs."""
_QUESTIONS = 4


def export_again(source, path):
    """Exports a SavedModel again with its weights, but without its run.

    Weights are matched by name, so this fails in Keras 2, or after this process
    built another network. Returns `path`, and the largest difference between
    the outputs of the models.
    """
    before = load_saved_model(source)
    record = before.metadata.get("metadata", {})
    if "settings" not in record:
        raise InputError(
            "source",
            "be a model that was exported from a run",
            f"source='{source}', which has no settings",
            "Export the network again.",
        )
    loaded = tf.saved_model.load(str(before.path))
    settings = _settings(record["settings"], loaded.signatures, source)
    values = {value.name: value for value in loaded.used_variables}
    fitted = _fitted(before, record) | _word_vectors(values, settings)
    task = registry.open_task(settings)
    network = task.model.build(settings, fitted)
    endpoints = task.endpoints(network, fitted)
    halved = any(value.dtype == tf.float16 for value in values.values())
    _assign(endpoints, values, source)
    path = write_saved_model(
        endpoints, path, metadata=record, half_precision=halved
    )
    after = load_saved_model(path)
    return path, _compare(loaded.signatures, after)


def _settings(record, signatures, source):
    settings = settings_of_model(record, source)
    inputs = {
        spec.name
        for signature in signatures.values()
        for spec in signature.structured_input_signature[1].values()
    }
    if "image_bytes" in inputs and settings.image_encoder == "features":
        # `_assign` overwrites these weights with those in the SavedModel.
        settings = settings.replace(cnn_weights="imagenet")
    return settings


def _fitted(model, record):
    """Returns the fitted values of a run that its served model needs."""
    words = model.vocabulary.words if model.vocabulary else ()
    return sizes_of(model.metadata) | {
        "words": list(words),
        "image_features_made_by": record.get("image_features_made_by", {}),
        "text_features_made_by": record.get("text_features_made_by", {}),
    }


def _word_vectors(values, settings):
    """Returns the model's word vectors if their size is not `word_dim`."""
    for name, value in values.items():
        if name.endswith("/words/embeddings:0"):
            if value.shape[1] != settings.texts.word_dim:
                return {"word_vectors": tf.cast(value, tf.float32).numpy()}
    return {}


def _assign(endpoints, values, source):
    variables = {
        variable.name: variable
        for function in endpoints.functions.values()
        for variable in function.get_concrete_function().variables
    }
    mismatched = values.keys() ^ variables.keys()
    mismatched |= {
        name
        for name in values.keys() & variables.keys()
        if values[name].shape != variables[name].shape
    }
    if mismatched:
        raise InputError(
            "source",
            "hold the weights of the network that its settings build",
            f"source='{source}', where {sorted(mismatched)[0]} and "
            f"{len(mismatched) - 1} others do not fit",
            "Export it with the version of tbnets that trained it.",
        )
    for name, variable in variables.items():
        variable.assign(tf.cast(values[name], variable.dtype))


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
    """Returns the largest difference of outputs, or inf if strings differ."""
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
    if spec.name == "image_bytes":
        photos = [
            tf.io.encode_jpeg(
                tf.constant(
                    generator.integers(0, 256, (90, 70 + row, 3)), tf.uint8
                )
            ).numpy()
            for row in range(_QUESTIONS)
        ]
        return np.array(photos if spec.shape.rank else photos[0])
    if spec.name == "boxes":
        return np.array([[0, 0, 70, 90], [5, 8, 30, 70]], np.float32)
    if spec.dtype == tf.string or spec.name == "trees":
        words = generator.choice(model.vocabulary.words[1:], (_QUESTIONS, 7))
        captions = [" ".join(row[: 1 + 2 * i]) for i, row in enumerate(words)]
        if spec.dtype == tf.string:
            return np.array([caption.encode() for caption in captions])
        trees = [f"(S (NP {text}) (VP (NP {text})))" for text in captions]
        return TreeReader(model.vocabulary).read(map(read_tree, trees))
    shape = [size or _QUESTIONS for size in spec.shape]
    return generator.normal(size=shape).astype(np.float32)
