"""The models of a server: what its protocols, gRPC and REST, ask.

::

    models = Models({"flickr8k": "served/flickr8k"})
    models.start()
    with models.using("flickr8k") as version:
        version.predict("embed_text", {"captions": ["a dog"]})
    models.close()

A client gets a model's newest version, or one by its number or label. It is
for trying; TensorFlow Serving is for production.
"""

import contextlib
import functools
import threading
import time

from tbnets import files
from tbnets.cores import usable_cores
from tbnets.extras.server.version import Version
from tbnets.extras.server.versions import Versions, newest
from tbnets.serving.protocol import RequestError, invalid

MOST_REQUESTS = 64
"""Requests that are in work or wait, beyond which a client is sent away."""
MOST_FAILURES = 20
"""Requests that fail, of which a line is told, in a minute."""


class Models:
    """Models by their names.

    Args:
        folders: name -> folder, see `Versions`.
        trust: whether their graphs may have any ops.
        batching: `Batching`; None for none.
        policies: name -> function of the versions there are -> those that
            shall serve; where it has none, the newest.
        labels: name -> label -> version.
        poll_seconds: between two looks at the folders.
        tell: function of a line: what is loaded, and requests that fail, a
            few of them.
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
        self._failures = _Failures(tell)
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def names(self):
        """Returns the names of the models."""
        return list(self._versions)

    def start(self):
        """Loads each model, then watches their folders.

        Raises:
            ValueError: a model has no version, or one that does not load.
        """
        for versions in self._versions.values():
            versions.start()
        self._watcher.start()

    def close(self):
        """Ends the watching, and gives no version out any more."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for versions in self._versions.values():
            versions.close()

    @contextlib.contextmanager
    def using(self, model, version=None, label=""):
        """Gives the `Version` that a client asks for, until the context ends.

        Args:
            model: its name.
            version: its number; None for the newest.
            label: or what it is labelled.

        Raises:
            RequestError: there is none of these, or too much is asked at once.
        """
        try:
            versions = self._of(model)
            if label:
                version = self._labelled(model, label)
            with self._admitted(), versions.using(version) as served:
                yield served
        except RequestError as error:
            self._failures.tell(f"{model}: {error.code}: {error}")
            raise

    def _labelled(self, model, label):
        version = self._labels.get(model, {}).get(label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {label}")
        return version

    @contextlib.contextmanager
    def _admitted(self):
        """Sends a client away where too many others are here."""
        requests = self._requests
        if not requests.acquire(blocking=False):
            raise RequestError(
                "UNAVAILABLE",
                f"The server works on {MOST_REQUESTS} requests, and takes no "
                "more. Ask again later.",
            )
        try:
            yield
        finally:
            requests.release()

    def metadata(self, model, version=None, label=""):
        """Returns (number of the version, name -> `SignatureDef`)."""
        with self.using(model, version, label) as served:
            return served.number, served.signature_defs

    def status(self, model, version=None, label=""):
        """Returns the `State` of a version, or of each, the newest first.

        Raises:
            RequestError: there is none, or it is asked for by a label.
        """
        if label:
            raise invalid(
                "A version must be asked for by its number. Received: the "
                f"label {label}. Send its number, or none for all versions."
            )
        return self._of(model, "find any versions of model").states(version)

    def _of(self, model, doing="serve model"):
        if model not in self._versions:
            raise RequestError(
                "NOT_FOUND",
                f"Could not {doing} {model}. There are: "
                f"{', '.join(self._versions)}.",
            )
        return self._versions[model]

    def _watch(self):
        while not self._ending.wait(self._poll_seconds):
            for name, versions in self._versions.items():
                try:
                    versions.look()
                except OSError as error:  # Files go while they are listed.
                    self._failures.tell(f"{name} is not looked at: {error}")


class _Failures:
    """Tells of requests that fail: some a minute, the others counted.

    Args:
        tell: function of a line.
    """

    def __init__(self, tell):
        self._tell = tell
        self._lock = threading.Lock()
        self._since, self._count = 0, 0

    def tell(self, line):
        """Tells a line, unless too many were told before."""
        now = time.monotonic()
        with self._lock:
            if now - self._since > 60:
                more = self._count - MOST_FAILURES
                if more > 0:
                    self._tell(f"{more} more requests failed")
                self._since, self._count = now, 0
            self._count += 1
            if self._count <= MOST_FAILURES:
                self._tell(files.readable(f"failed: {line[:300]}"))
