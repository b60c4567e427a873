"""Opens a trained model from which a run starts.

The model is a run or an exported SavedModel, such as a zoo model. Only the
weights, settings and words of a SavedModel are read; its graph is never run.
"""

import contextlib
import pathlib
from typing import NamedTuple

import numpy as np

from tbnets.data.store.reader import file_sha256
from tbnets.errors import InputError, MissingFileError
from tbnets.features import hub
from tbnets.features.photo_features import RANDOM
from tbnets.serving import saved_files, zoo
from tbnets.serving.checksums import check_files
from tbnets.tasks import registry
from tbnets.tasks.builders import build_network
from tbnets.tasks.photo_readers import start_at_photo
from tbnets.tasks.settings.records import completed
from tbnets.tasks.settings.settings import ALL, FLAGS, Settings
from tbnets.tasks.task import check_fitted_kinds
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints
from tbnets.training.checkpoints import (
    checkpoint_path,
    renumbered,
    uncounted,
    weight_names,
)

NETWORK_FLAGS = (
    "task model image_encoder fine_tune image_size image_transform "
    "text_encoder fine_tune_text word_dim rnn_units mean_beside image_units "
    "text_units batch_normalization head_units region_branch"
).split()
"""Flags that determine the weights of a network."""
_OF_RUN = {flag.name for flag in (*FLAGS["run"], *FLAGS["captions"])}
_TAKEN = {name for name in ALL if not ALL[name].is_place} - _OF_RUN
_TAKEN |= {"task", "model"}
"""Flags that a run takes from the model that it starts from."""
_RESET = ("draws", "total", "count")
"""Weights that are not loaded: dropout counters and sums of Keras metrics."""


class Trained(NamedTuple):
    """A trained model.

    Args:
        name: name that the user gave.
        path: path of the checkpoint, or folder of the SavedModel.
        settings: `Settings` of the model, excluding file and folder paths.
        fitted: result of `Task.fit` in training. For a SavedModel, only
            `words` and the feature descriptions.
        weights: list of (name, array) pairs.
        sha256: SHA-256 digest of the weights file.
    """

    name: str
    path: pathlib.Path
    settings: Settings
    fitted: dict
    weights: list
    sha256: str

    def values(self):
        """Returns flags that a run takes from the model, as {name: value}."""
        return {
            name: value
            for name, value in self.settings.values().items()
            if name in _TAKEN
        }

    def put_into(self, network):
        """Assigns the weights to a network, except for vectors of new words.

        The network must be built with `values()`, and its vocabulary must begin
        with the words of `fitted`. Raises ValueError if a weight is missing or
        has a different shape.
        """
        arrays, pairs = self._arrays(network), []
        for name, variable in zip(weight_names(network), network.weights):
            if name.rpartition("/")[2] in _RESET:
                continue
            array, shape = arrays.get(name), tuple(variable.shape)
            if _of_words(name) and np.shape(array)[1:] == shape[1:]:
                array = np.concatenate([array, variable[len(array) :]])
            if array is None or array.shape != shape:
                text = "no weight" if array is None else f"shape {array.shape}"
                expected = f"be a model with {name} of shape {shape}"
                raise InputError("--from", expected, f"{self.name} with {text}")
            pairs.append((variable, array))
        for variable, array in pairs:
            variable.assign(array.astype("float32"))

    def _arrays(self, network):
        if self.path.suffix == ".npz":
            return dict(self.weights)
        # A SavedModel has the names of the process that exported it.
        first = uncounted(network.name)[0]
        arrays = {tuple(name.split("/")): array for name, array in self.weights}
        net = [path for path in arrays if uncounted(path[0])[0] == first]
        names = renumbered(net)
        return {"/".join(names[path][1:]): arrays[path] for path in net}


def open_trained(name, start="", argument="--from"):
    """Opens a trained model as a `Trained`.

    `name` is the name of a zoo model, or the folder of a run or a SavedModel,
    relative to `start`. Error messages name the flag `argument`. Raises
    FileNotFoundError if there is no such model, and ValueError if it is
    damaged, has no settings, or was not trained by gradients.
    """
    path = _find(name, start, argument)
    if path.suffix == ".npz":
        saved = checkpoints.read_checkpoint(path)
        record, fitted = saved.state.settings, saved.state.fitted
        arrays = sorted(saved.arrays.items())
        weights = [(saved.names[k], v) for k, v in arrays if k < "optimizer"]
        file = path
    else:
        meta = saved_files.read_metadata(path).get("metadata", {})
        record, words = meta.get("settings"), path / saved_files.VOCABULARY_FILE
        fitted = {key: meta[key] for key in meta if key.endswith("_made_by")}
        known = Vocabulary.load(words).words if words.is_file() else ()
        fitted["words"] = list(known)
        weights = saved_files.read_weights(path)
        file = path / "variables/variables.data-00000-of-00001"
    check_fitted_kinds(fitted, path, ("words",))
    settings = _settings(name, record, path, argument)
    for key, array in weights:
        if _of_words(key) and array.ndim == 2:
            settings = settings.replace(word_dim=array.shape[1])
    made_by = fitted.get("image_features_made_by", {})
    # Settings name the preset, `made_by` only its class.
    images = settings.images
    if "cnn" in made_by and images and not hub.is_hub(images.image_encoder):
        settings = settings.replace(image_encoder=made_by["cnn"])
    return Trained(name, path, settings, fitted, weights, file_sha256(file))


def sizes_of(metadata):
    """Returns the input sizes of a network from its SavedModel's metadata.

    The dict contains `image_dim`, `text_dim` and, if the network embeds both
    images and regions, `region_dim`. A size is None for words or pixels.
    """
    signatures = metadata.get("signatures", {})

    def dim_of(name):
        specs = signatures.get(name, {}).get("inputs", {}).values()
        sizes = [x["shape"][-1] for x in specs if x["dtype"] == "float32"]
        return sizes[0] if sizes else None

    text = "embed_text" if "embed_text" in signatures else "embed_phrases"
    sizes = {
        "image_dim": dim_of("embed_features") or dim_of("embed_image"),
        "text_dim": dim_of(text),
    }
    region_dim = dim_of("embed_regions")
    if sizes["image_dim"] is None:
        sizes["image_dim"] = region_dim
    elif region_dim is not None:
        sizes["region_dim"] = region_dim
    return sizes


def rebuild(name, cnn_weights=""):
    """Builds the network of a trained model, without its data.

    Returns (network, endpoints): the network in float32 and its `Endpoints`.
    `name` is a zoo model or a folder. If the network was trained on features of
    photos, the endpoints read photos with the weights `cnn_weights`; "" means
    `imagenet`.
    """
    trained = open_trained(name, argument="--model")
    settings = trained.settings.replace(precision="float32")
    if settings.image_encoder != "features":
        settings = settings.replace(cnn_weights=RANDOM)
    elif trained.fitted.get("image_features_made_by"):
        settings = start_at_photo(settings, cnn_weights or "imagenet")
    fitted = trained.fitted
    if trained.path.is_dir():
        fitted = sizes_of(saved_files.read_metadata(trained.path)) | fitted
        if preset := fitted.get("text_features_made_by", {}).get("preset"):
            fitted["text_dim"] = preset["dim"]
    task = registry.open_task(settings)
    network = build_network(settings, fitted)
    trained.put_into(network)
    return network, task.endpoints(network, fitted)


def _find(name, start, argument):
    if name in zoo.names():
        check_files(zoo.folder() / name)
        return saved_files.newest_version(zoo.folder() / name)
    folder = pathlib.Path(start, name)
    best = checkpoint_path(folder, "best")
    if best.is_file():
        return best
    with contextlib.suppress(MissingFileError):
        return saved_files.newest_version(folder)
    expected = "be a zoo model, or the folder of a run with a finished epoch"
    advice = f"The zoo has {', '.join(zoo.names()) or 'none'}."
    raise MissingFileError(argument, expected, f"{argument}={name}", advice)


def _settings(name, record, path, argument):
    places = {name: flag.default for name, flag in ALL.items() if flag.is_place}
    record = {**completed(record, path), **places, "started_in": ""}
    settings = registry.settings_of(record)
    if settings.optimizer is None:
        expected = "be a model that is trained by gradients"
        raise InputError(argument, expected, f"--model={settings.run.model}")
    return settings


def _of_words(name):
    return name.rpartition("/")[2] == "embeddings"
