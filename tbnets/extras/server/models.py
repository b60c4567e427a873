"""Loads the newest version of each served model, and replaces it.

::

    models = Models({"flickr8k": "served/flickr8k"})
    models.start()
    models.get("flickr8k").predict("embed_text", {"captions": ["a dog"]})

The old version serves requests while a new version is loaded, and remains in
memory until its running requests end.
"""

import math
import threading

import numpy as np
import tensorflow as tf

from tbnets.serving import export, saved_files
from tbnets.serving.protocol import (
    RequestError,
    invalid,
    read_warm_up_requests,
    refusal,
    to_array,
    to_numpy,
)
from tbnets.serving.served import load_saved_model
from tbnets.startup import usable_cores

MOST_ROWS = 4096
"""Maximum number of rows in an input. A million empty captions are small but
take a long time."""
MOST_PAIRS = 2**18
"""Maximum number of pairs of rows from two inputs. A learned similarity runs a
network for each pair."""
# Limits the memory of concurrent calls.
_SLOTS = threading.BoundedSemaphore(max(2, usable_cores()))


class Version:
    """A loaded version of a model, after its warm-up requests.

    `path` is the folder of the SavedModel. `trust` allows all ops in its graph.
    The attribute `served` is the `Served` model.
    """

    def __init__(self, number, path, trust=False):
        self.number = number
        self.served = load_saved_model(path, trust)
        for request in read_warm_up_requests(self.served.path):
            inputs = {n: to_array(n, x) for n, x in request.inputs.items()}
            self.predict(request.model_spec.signature_name, inputs)

    def function(self, signature=""):
        """Returns the concrete function of a signature; "" is the default."""
        signatures = self.served.signatures
        if (signature or export.DEFAULT) not in signatures:
            raise invalid(f"`signature_name` must be in {sorted(signatures)}.")
        return signatures[signature or export.DEFAULT]

    def predict(self, signature, inputs):
        """Calls a signature and returns a sorted dict of output arrays.

        Raises RequestError if the request is invalid or the graph raises an
        error.
        """
        function = self.function(signature)
        specs = function.structured_input_signature[1]
        if inputs.keys() != specs.keys():
            raise invalid(f"The inputs must be {sorted(specs)}.")
        tensors = {n: _tensor(specs[n], value) for n, value in inputs.items()}
        _check_pairs(function.structured_outputs, tensors)
        try:
            with _SLOTS:
                answers = function(**tensors)
        except tf.errors.OpError as error:
            raise refusal(error) from error
        return {name: to_numpy(answers[name]) for name in sorted(answers)}


def _tensor(spec, value):
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    kind = tf.string if is_text else tf.as_dtype(array.dtype)
    if kind != spec.dtype or not spec.shape.is_compatible_with(array.shape):
        raise invalid(
            f"`{spec.name}` must be {spec.dtype.name} {spec.shape}. Received: "
            f"{kind.name} {array.shape}."
        )
    if array.shape and len(array) > MOST_ROWS:
        raise invalid(f"Send at most {MOST_ROWS} rows of `{spec.name}`.")
    return tf.constant(array, spec.dtype)


def _check_pairs(outputs, tensors):
    shapes = [spec.shape.as_list() for spec in outputs.values()]
    rows = {n: x.shape[0] for n, x in tensors.items() if x.shape.rank}
    if [None, None] in shapes and math.prod(rows.values()) > MOST_PAIRS:
        raise invalid(f"Send at most {MOST_PAIRS} pairs. Received: {rows}.")


class Models:
    """The models of a server, each in its newest version.

    Args:
        folders: model name -> folder that contains `VERSION/saved_model.pb`, or
            a run folder.
        trust: whether to allow all ops in the models' graphs.
        poll_seconds: seconds between two checks of the folders.
        tell: function that prints a line.
    """

    def __init__(self, folders, trust=False, poll_seconds=1, tell=print):
        self._folders, self._trust = folders, trust
        self._poll_seconds, self._tell = poll_seconds, tell
        self._versions = {}
        self._failed = {}  # Files of versions that failed to load.
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def names(self):
        """Returns the names of the models."""
        return list(self._folders)

    def start(self):
        """Loads all models, then watches their folders."""
        for name, folder in self._folders.items():
            saved_files.newest_version(folder)  # There must be one.
            self.update(name)
        self._watcher.start()

    def close(self):
        """Stops watching the folders."""
        self._ending.set()

    def get(self, name, number=None):
        """Returns the newest `Version` of a model.

        Raises RequestError if `number` is the number of another version.
        """
        version = self._versions.get(name)
        if version is None or number not in (None, version.number):
            raise RequestError(
                "NOT_FOUND",
                f"The model must be the newest version of {self.names()}. "
                f"Received: {name[:100]}, version {number}.",
            )
        return version

    def update(self, name):
        """Loads a model's newest version if it is not the loaded version.

        Calls must not overlap. Raises an error if the first version does not
        load. A later version that failed is loaded again after its files have
        changed.
        """
        old = self._versions.get(name)
        folders = saved_files.find_versions(self._folders[name])
        number = max(folders, default=None)
        if number is None or number == getattr(old, "number", None):
            return
        paths = folders[number].rglob("*")
        files = {path: path.stat().st_mtime_ns for path in paths}
        if files == self._failed.get(name):
            return
        try:
            version = Version(number, folders[number], self._trust)
        except Exception as error:  # The old version must continue.
            if old is None:
                raise
            self._failed[name] = files
            self._tell(
                f"{name} version {number} does not load, version {old.number} "
                f"serves: {error!r}"
            )
        else:
            self._versions[name] = version
            self._tell(f"{name} version {number} serves")

    def _watch(self):
        while not self._ending.wait(self._poll_seconds):
            for name in self._folders:
                try:
                    self.update(name)
                except OSError as error:  # Files may disappear meanwhile.
                    self._tell(f"{name} cannot be read: {error}")
