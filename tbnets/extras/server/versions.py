"""Loads, replaces and unloads the versions in a model's folder.

The old version serves requests while a new version is loaded, and finishes its
running requests before it is unloaded. If a version fails to load, it is loaded
again when its files change.
"""

import contextlib
import dataclasses
import threading
from typing import NamedTuple

from tbnets.errors import InputError, UserError
from tbnets.serving import saved_files
from tbnets.serving.photo_index import stamp_of
from tbnets.serving.protocol import RequestError


class State(NamedTuple):
    """The state of a version, for GetModelStatus.

    `state` names a `ModelVersionStatus.State`. `code` is "OK", or the name of
    the error's gRPC status, which `message` describes.
    """

    version: int
    state: str
    code: str = "OK"
    message: str = ""


@dataclasses.dataclass
class _RunningVersion:
    """A version and the number of its users.

    `users` counts running requests, plus 1 while the version accepts requests.
    """

    number: int
    served: object
    users: int = 1


def newest(numbers, count=1):
    """Returns the `count` largest version numbers."""
    return sorted(numbers)[-count:]


class Versions:
    """The versions of a model.

    Args:
        name: name of the model.
        folder: folder that contains `VERSION/saved_model.pb`, or a run folder.
        load: function that takes a number and a path, returns a `Version`.
        wanted: function that selects the version numbers to serve, by default
            the newest.
        tell: function that prints a line.
    """

    def __init__(self, name, folder, load, wanted=newest, tell=print):
        self.name = name
        self._folder = folder
        self._load, self._wanted, self._tell = load, wanted, tell
        self._lock = threading.Lock()
        self._states = {}
        self._serving = {}  # number -> `_RunningVersion`
        self._failed = {}  # number -> files that failed to load

    def states(self, version=None):
        """Returns the `State`s of one version or all versions, newest first."""
        with self._lock:
            states = sorted(self._states.values(), reverse=True)
        if version is not None:
            states = [state for state in states if state.version == version]
        if not states:
            which = "any versions" if version is None else f"version {version}"
            raise RequestError(
                "NOT_FOUND", f"Could not find {which} of model {self.name}"
            )
        return states

    @contextlib.contextmanager
    def using(self, version=None):
        """Yields a version and keeps it loaded until the `with` block ends."""
        with self._lock:
            number, request = version, f"Specific({self.name}, {version})"
            if version is None:
                number = max(self._serving, default=None)
                request = f"Latest({self.name})"
            chosen = self._serving.get(number)
            if chosen is None:
                raise RequestError(
                    "NOT_FOUND", f"Servable not found for request: {request}"
                )
            chosen.users += 1
        try:
            yield chosen.served
        finally:
            self._leave(chosen)

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
        if not self._serving.keys().isdisjoint(numbers):
            for number in self._serving.keys() - set(numbers):
                self._retire(number)

    def close(self):
        """Retires all versions."""
        for number in list(self._serving):
            self._retire(number)

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
        with self._lock:
            self._serving[number] = _RunningVersion(number, served)
            self._states[number] = State(number, "AVAILABLE")
        self._tell(f"{self.name} version {number} serves")

    def _retire(self, number):
        """Stops accepting requests for a version, and unloads it when idle."""
        with self._lock:
            version = self._serving.pop(number)
            self._states[number] = State(number, "UNLOADING")
        self._leave(version)

    def _leave(self, version):
        with self._lock:
            version.users -= 1
            if version.users:
                return
            # The version may have been loaded again.
            if self._states[version.number].state == "UNLOADING":
                self._states[version.number] = State(version.number, "END")
        self._tell(f"{self.name} version {version.number} has ended")

    def _put(self, state):
        with self._lock:
            self._states[state.version] = state
