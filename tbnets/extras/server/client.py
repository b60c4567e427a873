"""A model on a server, asked as one that is loaded.

`Client` is a `serving.served.Served` whose signatures are called over the wire:
TensorFlow Serving's gRPC or REST, whichever the address says.
"""

import functools
import random
import time

import tensorflow as tf

from tbnets.annotations import Path
from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError, UnreachableError
from tbnets.extras.server.channels import OTHER_PROTOCOL, open_channel
from tbnets.serving import export, saved_files, zoo
from tbnets.serving.protocol import RequestError, to_numpy
from tbnets.serving.served import Served
from tbnets.short_repr import short_repr

BATCH_SIZE = 32
"""Rows of a request: what TensorFlow Serving takes as it is configured here."""
MOST_BYTES = 2**24
"""What a request's rows may have, unless one alone has more."""
PAUSE = 0.2
"""Seconds before a question is asked again; each time twice as many."""
_AWAY = ("UNAVAILABLE", OTHER_PROTOCOL, "DEADLINE_EXCEEDED")


class Client(Served):
    """A model on a server; see `Served` for what it can be asked.

    What a server does not tell, its words and how boxes are proposed, comes
    from the model's folder, where this machine has it.

    Args:
        server: `grpc://HOST:PORT`, which needs the extra `serving`, or
            `http://HOST:PORT`.
        model: its name there.
        version: its number; None for the newest, whichever that is when it
            is asked.
        folder: of the same SavedModel, or one above; None for that of the
            zoo's model of this name, if there is one.
        timeout: seconds that an answer may take, repetitions included.
        retries: how often a question is asked again where the server is not
            available; never where it refuses.
        batch_size: most rows of a request; more are several requests.

    Raises:
        ConnectionError: no such server answers.
        ValueError: it has no such model, or an argument is none.

    Example:
        with tbnets.Client("grpc://localhost:8500", "flickr8k_photos") as model:
            model.search(["a dog in the snow"], "photos")
    """

    def __init__(
        self,
        server: str,
        model: str,
        version: int | None = None,
        *,
        folder: Path | None = None,
        timeout: float = 30,
        retries: int = 3,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self.server, self.model = server, model
        self.timeout = checked_number("timeout", timeout, 0, above=True)
        self.retries = checked_number("retries", retries, 0, whole=True)
        self.batch_size = checked_number(
            "batch_size", batch_size, 1, whole=True
        )
        self._channel = open_channel(server, model, version)
        found = self._patiently(self._channel.signatures)
        ask = functools.partial(self._patiently, self._channel.predict)
        signatures = {
            name: Signature(functools.partial(ask, name), one, batch_size)
            for name, one in found.items()
            if not name.startswith("__")
        }
        if folder is None and model in zoo.names():
            folder = zoo.folder() / model
        metadata, vocabulary = {}, None
        if folder is not None:
            folder = saved_files.newest_version(folder)
            metadata = saved_files.read_metadata(folder)
            vocabulary = saved_files.read_vocabulary(folder)
        super().__init__("", signatures, metadata, vocabulary)
        self.path = f"{server}/{model}"

    __repr__ = short_repr("server", "model", "embedding_dim")

    def __enter__(self) -> "Client":
        """Returns itself: its connection ends with the block."""
        return self

    def __exit__(self, *_) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    @classmethod
    def at(cls, address: str) -> "Client":
        """Returns the client of a model that is named by one address.

        Args:
            address: SERVER/MODEL or SERVER/MODEL/VERSION.

        Example:
            Client.at("http://localhost:8501/flickr8k_photos")
        """
        server, _, path = address.partition("://")
        host, _, path = path.partition("/")
        model, _, version = path.strip("/").partition("/")
        if not model or not (version or "0").isdecimal():
            raise InputError(
                "`model` must be SERVER/MODEL or SERVER/MODEL/VERSION. "
                f"Received: model={address}. Write for example "
                "http://localhost:8501/flickr8k_photos."
            )
        number = int(version) if version else None
        return cls(f"{server}://{host}", model, number)

    def states(self) -> list[dict]:
        """Returns the state of each version that the server knows.

        Returns:
            list of dicts with "version", "state" (START, LOADING, AVAILABLE,
            UNLOADING or END) and "status", which says why it is none.
        """
        return self._patiently(self._channel.states)

    def _patiently(self, question, *given):
        """Asks until there is an answer, or no more time or sense."""
        until = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            left = until - time.monotonic()
            try:
                return question(*given, timeout=left)
            except RequestError as failure:
                pause = PAUSE * 2**attempt * random.uniform(0.5, 1)
                is_last = attempt == self.retries or pause >= left
                if failure.code != "UNAVAILABLE" or is_last:
                    raise self._error(failure) from failure
                time.sleep(pause)

    def _error(self, failure):
        """Returns the error for the user of a `RequestError`."""
        words = str(failure).rpartition("last error: ")[2].split("[[{{")[0]
        words = " ".join(words.split())[:400].rstrip(".")
        at = f"Received: server={self.server}"
        tells = {
            "UNAVAILABLE": f"`server` must be one that runs. {at}, which is "
            f"not available ({words}). Start it (python tools/serve.py), or "
            "mend the address.",
            OTHER_PROTOCOL: "`server` must be http:// of a REST API, or "
            f"grpc:// of gRPC. {at}, where something else answers ({words}). "
            "By default TensorFlow Serving has gRPC at port 8500 and REST at "
            "8501.",
            "DEADLINE_EXCEEDED": "`timeout` must be as long as an answer "
            f"takes. Received: timeout={self.timeout:g} seconds, batch_size="
            f"{self.batch_size}, and {self.server} did not answer. Raise it, "
            "or ask in smaller batches.",
            "NOT_FOUND": f"`model` must be one that is served. Received: model="
            f"{self.model} at {self.server} ({words}). Ask for another.",
        }
        usual = (
            f"{self.model} at {self.server} does not answer: {words} "
            f"({failure.code}). Change what is asked, or see the server's log."
        )
        kind = UnreachableError if failure.code in _AWAY else InputError
        return kind(tells.get(failure.code, usual))


class Signature:
    """A signature of a model on a server, called as one that is loaded.

    What works row by row is asked in batches.

    Args:
        ask: function of its inputs, arrays by name, and its outputs, specs by
            name -> arrays by name.
        told: its `SignatureDef`.
        batch_size: most rows of a request.
    """

    def __init__(self, ask, told, batch_size):
        self._ask, self._batch_size = ask, batch_size
        self.structured_input_signature = (), _specs(told.inputs)
        self.structured_outputs = _specs(told.outputs)
        self._is_by_rows = export.is_batchable(export.describe(self))

    def __call__(self, **inputs):
        """Returns the outputs by their names, as tensors."""
        arrays = {name: to_numpy(one) for name, one in inputs.items()}
        outputs = self.structured_outputs
        if not self._is_by_rows:
            found = self._ask(arrays, outputs)
            return {name: tf.constant(one) for name, one in found.items()}
        [(name, rows)] = arrays.items()
        found = [
            self._ask({name: some}, outputs)
            for some in parts_of(rows, self._batch_size)
        ]
        return {
            name: tf.concat([_none(spec), *(one[name] for one in found)], 0)
            for name, spec in outputs.items()
        }


def _specs(told):
    """Returns the `tf.TensorSpec` of each of some `TensorInfo`, by name."""
    return {
        name: tf.TensorSpec(
            tf.TensorShape(one.tensor_shape), tf.as_dtype(one.dtype), name
        )
        for name, one in sorted(told.items())
    }


def _none(spec):
    """Returns no row of an output."""
    return tf.zeros([size or 0 for size in spec.shape], spec.dtype)


def parts_of(rows, most, most_bytes=MOST_BYTES):
    """Yields rows in parts of so many, and of so many bytes.

    Args:
        rows: array, of strings as bytes.
        most: rows of a part.
        most_bytes: of a part that has more than a row.
    """
    start = size = 0
    for stop, row in enumerate(rows):
        row_bytes = len(row) if isinstance(row, bytes) else row.nbytes
        if stop - start == most or (size and size + row_bytes > most_bytes):
            yield rows[start:stop]
            start, size = stop, 0
        size += row_bytes
    if len(rows):
        yield rows[start:]
