"""Loads, replaces and unloads the versions in a model's folder.

The old version serves requests while a new version is loaded. A replaced
version remains in memory until its running requests end. If a version fails to
load, loading is tried again when its files change.
"""

from typing import NamedTuple

from tbnets.errors import InputError, UserError
from tbnets.serving import saved_files
from tbnets.serving.embedding_cache import stamp_of
from tbnets.serving.protocol import RequestError


class State(NamedTuple):
    """The state of a version, for GetModelStatus.

    `state` is the name of a `ModelVersionStatus.State`. `code` is "OK" or the
    name of the error's gRPC status. `message` describes the error.
    """

    version: int
    state: str
    code: str = "OK"
    message: str = ""


def newest(numbers, count=1):
    """Returns the `count` largest version numbers."""
    return sorted(numbers)[-count:]


class Versions:
    """The versions of a model.

    Args:
        name: name of the model.
        folder: folder that contains `VERSION/saved_model.pb`, or a run folder.
        load: function that takes a number and a path, and returns a `Version`.
        wanted: function that selects the version numbers to serve, by default
            the newest.
        tell: function that prints a line.
    """

    def __init__(self, name, folder, load, wanted=newest, tell=print):
        self.name = name
        self._folder = folder
        self._load, self._wanted, self._tell = load, wanted, tell
        # Requests read these two dicts in other threads, so that each change
        # makes a new dict.
        self._states = {}
        self._serving = {}  # number -> `Version`
        self._failed = {}  # number -> files that failed to load

    def states(self, version=None):
        """Returns the `State`s of one version or all versions, newest first."""
        states = sorted(self._states.values(), reverse=True)
        if version is not None:
            states = [state for state in states if state.version == version]
        if not states:
            which = "any versions" if version is None else f"version {version}"
            raise RequestError(
                "NOT_FOUND", f"Could not find {which} of model {self.name}"
            )
        return states

    def get(self, version=None):
        """Returns a loaded version, by default the newest."""
        serving, request = self._serving, f"Specific({self.name}, {version})"
        if version is None:
            version = max(serving, default=None)
            request = f"Latest({self.name})"
        if version not in serving:
            raise RequestError(
                "NOT_FOUND", f"Servable not found for request: {request}"
            )
        return serving[version]

    def start(self):
        """Loads the existing versions."""
        self.look()
        for state in self._states.values():
            if state.state == "END":
                raise InputError(state.message)
        if not self._serving:
            raise InputError(
                "model",
                f"be a folder with versions, as 1/{saved_files.GRAPH_FILE}",
                f"{self.name}={self._folder}, which has no versions",
                "Export a run to this folder.",
            )

    def look(self):
        """Loads new versions, and retires the versions that they replace.

        Calls must not overlap.
        """
        folders = saved_files.find_versions(self._folder)
        numbers = self._wanted(folders)
        for number in numbers:
            if number not in self._serving:
                self._try(number, folders[number])
        for number in self._failed.keys() - set(numbers):
            del self._failed[number]
        # Keeps the old versions until a new version is served.
        kept = {n: v for n, v in self._serving.items() if n in numbers}
        if kept:
            replaced, self._serving = self._serving.keys() - kept.keys(), kept
            for number in replaced:
                self._put(State(number, "END"))
                self._tell(f"{self.name} version {number} has ended")

    def _try(self, number, path):
        """Loads a version, unless the same files failed to load before."""
        paths = [file for file in path.rglob("*") if file.is_file()]
        files = {file: stamp_of(file) for file in paths}
        if self._failed.get(number) == files:
            return
        self._put(State(number, "LOADING"))
        try:
            served = self._load(number, path)
        except Exception as error:  # Other versions must continue.
            self._failed[number] = files
            code = getattr(error, "code", "UNKNOWN")
            reason = " ".join(str(error).split()) or type(error).__name__
            if not isinstance(error, UserError):
                reason = f"{type(error).__name__}: {reason}"
            self._put(State(number, "END", code, reason))
            serving = ", ".join(map(str, sorted(self._serving))) or "none"
            self._tell(
                f"{self.name} version {number} does not load, {serving} "
                f"serves: {reason}"
            )
            return
        self._failed.pop(number, None)
        self._serving = {**self._serving, number: served}
        self._put(State(number, "AVAILABLE"))
        self._tell(f"{self.name} version {number} serves")

    def _put(self, state):
        self._states = {**self._states, state.version: state}
