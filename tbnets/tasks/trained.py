"""A trained model as the beginning of a run: its settings, words and weights.

Of a run they stand in its best checkpoint. A SavedModel that was exported from
a run, as those of the zoo are, holds them too: settings and words beside the
graph, weights in its variables, by names. Nothing of the graph is run.
"""

import contextlib
import difflib
import pathlib
import re
from typing import NamedTuple

import keras
import numpy as np

from tbnets import tasks
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError, MissingFileError
from tbnets.features import hub
from tbnets.serving import saved_files, zoo
from tbnets.serving.checksums import check_files
from tbnets.tasks.settings.records import completed
from tbnets.tasks.settings.settings import ALL, FLAGS, Settings
from tbnets.tasks.task import check_fitted_kinds
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints
from tbnets.training.checkpoints import checkpoint_path

OF_NETWORK = (
    *("task", "model", "image_encoder", "fine_tune", "image_size"),
    *("image_transform", "text_encoder", "fine_tune_text"),
    *("word_dim", "rnn_units", "mean_beside"),
    *("image_units", "text_units", "batch_normalization", "head_units"),
    *("product_scale", "region_branch"),
)
"""Flags that tell what the weights of a network are."""
_OWN = {each.name for each in (*FLAGS["run"], *FLAGS["captions"])}
_OWN = _OWN - {"task", "model"}
"""Flags that every run has for itself, whatever it begins with."""
_NEW = ("draws", "total", "count", "logit_scale")
"""Weights that begin anew: what dropout has drawn, sums of Keras' measures, and
the temperature of a loss, which may be another."""


class Trained(NamedTuple):
    """A trained model.

    Args:
        name: as a user names it.
        path: its checkpoint, or the folder of its SavedModel.
        settings: its `Settings`, without files and folders.
        fitted: what `TaskData.fit` returned when it was trained, of a
            SavedModel its `words` and what made features.
        weights: list of (name, array); of a checkpoint in the order of the
            network's.
        sha256: of the file with the weights.
    """

    name: str
    path: pathlib.Path
    settings: Settings
    fitted: dict
    weights: list
    sha256: str

    def values(self):
        """Returns the flags that a run has from it: name -> value."""
        values = self.settings.values()
        own = {name for name in ALL.keys() - _OWN if not ALL[name].is_place}
        return {name: values[name] for name in values if name in own}

    def put_into(self, network):
        """Gives a network the weights; words that they lack keep their own.

        Args:
            network: built by `values()`, with the words of `fitted` first.

        Raises:
            ValueError: a weight is missing, or has another shape, as those of
                features of another kind.
        """
        variables, arrays = weights_by_name(network), self._arrays(network)
        for name, variable in variables.items():
            array, shape = arrays.get(name), tuple(variable.shape)
            if _of_words(name[-1]) and np.shape(array)[1:] == shape[1:]:
                array = np.concatenate([array, variable[len(array) :]])
            if array is None or array.shape != shape:
                found = "none" if array is None else f"one of {array.shape}"
                raise InputError(
                    "--from",
                    "be a model of such inputs as the run's",
                    f"--from={self.name} with {found} where the run has "
                    f"{'/'.join(name)} of {shape}",
                    "Give it features of the kind that it was trained on, or "
                    "train anew.",
                )
            arrays[name] = array
        for name, variable in variables.items():
            variable.assign(arrays[name].astype("float32"))

    def _arrays(self, network):
        """Returns the weights by the names of `weights_by_name`."""
        if self.path.suffix == ".npz":
            # Frozen words are the last of their encoder's in Keras 2.
            own = sorted(self.weights, key=lambda one: not _of_words(one[0]))
            own = [one for name, one in own if _leaf(name) not in _NEW]
            names = weights_by_name(network)
            names = sorted(names, key=lambda path: not _of_words(path[-1]))
            return dict(zip(names, own)) if len(names) == len(own) else {}
        first = _uncounted(network.name)[0]
        arrays = {tuple(name.split("/")): one for name, one in self.weights}
        own = [path for path in arrays if _uncounted(path[0])[0] == first]
        return {name[1:]: arrays[path] for path, name in _renamed(own).items()}


def open_trained(name, start=""):
    """Opens a trained model.

    Args:
        name: a model of the zoo; or the folder of a run, or of a SavedModel
            that was exported from one.
        start: folder that a relative one starts from.

    Returns:
        A `Trained`.

    Raises:
        FileNotFoundError: there is no such model; names the nearest ones.
        ValueError: it is damaged, does not tell how it was trained, or has
            nothing that could be trained on.
    """
    path = _find(name, start)
    if path.suffix == ".npz":
        kept = checkpoints.read_checkpoint(path)
        record, fitted = kept.state.settings, kept.state.fitted
        arrays = sorted(kept.arrays.items())
        weights = [(kept.names[k], v) for k, v in arrays if k < "optimizer"]
        file = path
    else:
        told = saved_files.read_metadata(path).get("metadata", {})
        record, words = told.get("settings"), path / saved_files.VOCABULARY_FILE
        fitted = {key: told[key] for key in told if key.endswith("_made_by")}
        known = Vocabulary.load(words).words if words.is_file() else ()
        fitted["words"] = list(known)
        weights = saved_files.read_weights(path)
        file = path / "variables/variables.data-00000-of-00001"
    check_fitted_kinds(fitted, path, ("words",))
    settings = _settings(name, record, path)
    for key, array in weights:
        if _of_words(key) and array.ndim == 2:
            settings = settings.replace(word_dim=array.shape[1])
    made_by = fitted.get("image_features_made_by", {})
    # Which preset it was, the settings tell; what made features, its class.
    if (
        "cnn" in made_by
        and settings.images
        and not hub.is_hub(settings.images.image_encoder)
    ):
        settings = settings.replace(image_encoder=made_by["cnn"])
    return Trained(name, path, settings, fitted, weights, file_sha256(file))


def _find(name, start):
    """Returns the checkpoint or the SavedModel that a user means."""
    if name in zoo.names():
        check_files(zoo.folder() / name)
        return saved_files.newest_version(zoo.folder() / name)
    folder = pathlib.Path(start, name)
    best = checkpoint_path(folder, "best")
    if best.is_file():
        return best
    with contextlib.suppress(MissingFileError):
        return saved_files.newest_version(folder)
    found = "where there is none"
    if folder.is_dir():
        found = f"a folder without {best.relative_to(folder)}"
    near = difflib.get_close_matches(name, zoo.names())
    raise MissingFileError(
        "`--from` must be a model of the zoo, or the folder of a run with a "
        f"finished epoch. Received: --from={name}, {found}. "
        + (f"Did you mean {' or '.join(near)}? " if near else "")
        + f"The zoo has {', '.join(zoo.names()) or 'none'}."
    )


def settings_of_model(record, path):
    """Returns the `Settings` of a model, without files of any machine.

    Args:
        record: flag -> value, of the run that trained it.
        path: where it was kept, for errors.
    """
    places = {name: flag.default for name, flag in ALL.items() if flag.is_place}
    record = {**record, **places, "started_in": ""}
    return tasks.settings_of(completed(record, path))


def _settings(name, record, path):
    """Returns the settings of a model that can be trained on."""
    if record is None:
        raise InputError(
            "--from",
            "be a model that was exported from a run",
            f"--from={name}, which does not tell its settings",
            "Name the folder of the run.",
        )
    settings = settings_of_model(record, path)
    if settings.optimizer is None:
        raise InputError(
            "--from",
            "be a model that learns step by step",
            f"--from={name}, of --model={settings.run.model}, which is solved "
            "for at once",
            "Train it anew.",
        )
    return settings


def weights_by_name(network):
    """Returns what a network has learned, by names that all networks share.

    Keras counts layers of a class in a process: `branch_2` may be the first
    branch of the third network. In these names it is `branch`.

    Returns:
        dict, tuple of the names of layers, one in the other, and of the
        weight -> variable; in the order of the network's weights.
    """
    paths = _paths(network)
    found = [(paths[id(weight)], weight) for weight in network.weights]
    found = [one for one in found if one[0][-1] not in _NEW]
    names = _renamed([path for path, _ in found])
    return {names[path]: weight for path, weight in found}


def _paths(layer):
    """Returns id of each weight of a layer -> path of names, from there on.

    Keras 2 does not tell it, so that the layers are followed one by one.
    """
    found = {}
    inner = [*vars(layer).values(), *getattr(layer, "layers", ())]
    for each in inner:
        for child in each if isinstance(each, list | tuple) else [each]:
            if isinstance(child, keras.layers.Layer):
                for key, path in _paths(child).items():
                    found[key] = (child.name, *path)
    for weight in layer.weights:
        found.setdefault(id(weight), (_leaf(weight.name),))
    return found


def _leaf(name):
    """Returns the last part of a variable's name."""
    return name.rpartition("/")[2].partition(":")[0]


def _of_words(name):
    """Tells by its name whether a weight is a table of words."""
    return _leaf(name) == "embeddings"


def _uncounted(name):
    """Returns a name without the number that Keras appends, and that."""
    base, number = re.fullmatch(r"(.*?)(?:_(\d+))?", name).groups()
    return base, int(number or 0)


def _renamed(paths):
    """Returns paths -> the same with layers counted among their neighbours."""
    beside = {}
    for path in paths:
        for depth, part in enumerate(path):
            beside.setdefault(path[:depth], set()).add(_uncounted(part))

    def name(above, part):
        base, number = _uncounted(part)
        before = [n for b, n in beside[above] if b == base and n < number]
        return f"{base}_{len(before)}" if before else base

    return {
        path: tuple(name(path[:i], part) for i, part in enumerate(path))
        for path in paths
    }
