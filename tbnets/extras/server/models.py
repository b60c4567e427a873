"""The models of a trial server.

::

    models = Models({"flickr8k": "served/flickr8k"})
    models.start()
    with models.using("flickr8k") as version:
        version.predict("embed_text", {"captions": ["a dog"]})
"""

import contextlib
import functools
import threading

from tbnets import files
from tbnets.extras.server.versions import Version, Versions, newest
from tbnets.serving.protocol import RequestError, invalid
from tbnets.startup import usable_cores

MOST_REQUESTS = 64
"""Maximum number of requests at once. More requests are rejected."""


class Models:
    """The models of a server.

    Args:
        folders: model name -> folder, as in `Versions`.
        trust: whether to allow all ops in the models' graphs.
        batching: `Batching`, or None.
        policies: model name -> the `wanted` argument of its `Versions`.
        labels: model name -> dict that maps labels to versions.
        poll_seconds: seconds between two checks of the folders.
        tell: function that prints a line.
    """

    def __init__(
        self,
        folders,
        trust=False,
        batching=None,
        policies=None,
        labels=None,
        poll_seconds=1,
        tell=print,
    ):
        slots = threading.BoundedSemaphore(max(2, usable_cores()))
        load = functools.partial(
            Version, trust=trust, slots=slots, batching=batching
        )
        policies = policies or {}
        self._labels = labels or {}
        self._versions = {
            name: Versions(name, folder, load, policies.get(name, newest), tell)
            for name, folder in folders.items()
        }
        self._poll_seconds = poll_seconds
        self._requests = threading.BoundedSemaphore(MOST_REQUESTS)
        self._tell = tell
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def names(self):
        """Returns the names of the models."""
        return list(self._versions)

    def start(self):
        """Loads all models, then watches their folders."""
        for versions in self._versions.values():
            versions.start()
        self._watcher.start()

    def close(self):
        """Stops watching the folders."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()

    @contextlib.contextmanager
    def using(self, model, version=None, label=""):
        """Yields the `Version` for a request, by default the newest."""
        is_admitted = self._requests.acquire(blocking=False)
        try:
            if not is_admitted:
                raise RequestError(
                    "UNAVAILABLE",
                    f"The server already has {MOST_REQUESTS} requests. Try "
                    "again later.",
                )
            yield self._version(model, version, label)
        except RequestError as error:
            line = f"failed: {model}: {error.code}: {error}"
            self._tell(files.readable(line[:300]))
            raise
        finally:
            if is_admitted:
                self._requests.release()

    def _version(self, model, version, label):
        versions = self._of(model)
        if label:
            version = self._labels.get(model, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        return versions.get(version)

    def metadata(self, model, version=None, label=""):
        """Returns a version's number and its `SignatureDef`s by name."""
        with self.using(model, version, label) as served:
            return served.number, served.signature_defs

    def status(self, model, version=None, label=""):
        """Returns the `State`s of one version or all versions, newest first."""
        if label:
            raise invalid(
                "A version must be requested by its number. Received: the "
                f"label {label}. Send its number, or none for all versions."
            )
        return self._of(model, "find any versions of model").states(version)

    def _of(self, model, doing="serve model"):
        if model not in self._versions:
            raise RequestError(
                "NOT_FOUND",
                f"Could not {doing} {model}. The server has "
                f"{', '.join(self._versions)}.",
            )
        return self._versions[model]

    def _watch(self):
        while not self._ending.wait(self._poll_seconds):
            for name, versions in self._versions.items():
                try:
                    versions.look()
                except OSError as error:  # Files may disappear meanwhile.
                    self._tell(f"{name} cannot be read: {error}")
