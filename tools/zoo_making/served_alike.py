"""Models of the zoo on a server, and in this process: the same answers.

Everything as a user does it: tools/export.py --serving, tools/serve.py in a
process of its own. The questions are those that the server warms up by.
"""

import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.extras.demo.loopback import HOST
from tbnets.extras.server.client import Client
from tbnets.serving import zoo
from tbnets.serving.deployment import read_requests
from tbnets.serving.protocol import to_array

TOLERANCE = 1e-5
"""An answer may differ by so much: a sum is rounded by how it is batched."""
_TOOLS = pathlib.Path(__file__).parents[1]


def compare_served(sources):
    """Prints by how much answers of a server differ, by gRPC and by REST.

    Args:
        sources: folders of models of the zoo.

    Raises:
        ValueError: some answer differs by more than `TOLERANCE`.
    """
    with tempfile.TemporaryDirectory() as place:
        folders = [pathlib.Path(place, source.name) for source in sources]
        for source, folder in zip(sources, folders):
            given = f"--model={source}", f"--output={folder}", "--serving"
            subprocess.run(_line("export", *given), check=True)
        print(f"\n{'model':22}protocol  signatures  requests  differ by")
        with _served(folders) as servers:
            for source, folder in zip(sources, folders):
                for server in servers:
                    _compare(zoo.open_model(source), folder, server)


def _line(verb, *given):
    return [sys.executable, str(_TOOLS / f"{verb}.py"), *given]


@contextlib.contextmanager
def _served(folders):
    """Serves models; the context is the addresses of gRPC and REST."""
    with socket.create_server((HOST, 0)) as one:
        with socket.create_server((HOST, 0)) as other:
            port, rest_port = (x.getsockname()[1] for x in (one, other))
    line = _line(
        *("serve", f"--model={','.join(map(str, folders))}", f"--port={port}"),
        *(f"--rest_api_port={rest_port}", "--enable_batching"),
    )
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        try:
            while "Ctrl-C" not in (server.stdout.readline() or "Ctrl-C"):
                pass  # It says so when all models serve, or has ended.
            yield f"grpc://{HOST}:{port}", f"http://{HOST}:{rest_port}"
        finally:
            server.terminate()


def _compare(here, folder, server):
    """Prints a line of a model by one protocol."""
    differences, requests = {}, read_requests(folder / "1")
    with Client(server, folder.name, folder=folder) as there:
        for request in requests:
            name = request.model_spec.signature_name
            inputs = {
                key: tf.constant(to_array(key, one), one.dtype)
                for key, one in request.inputs.items()
            }
            pair = [model.signatures[name](**inputs) for model in (here, there)]
            worst = max(_difference(*(x[key] for x in pair)) for key in pair[0])
            differences[name] = max(worst, differences.get(name, 0))
    worst = max(differences, key=differences.get)
    print(
        f"{folder.name:22}{server[:4]:8}{len(differences):12}"
        f"{len(requests):10}{differences[worst]:11.1e}"
    )
    if {*differences} != {*here.signatures} or differences[worst] > TOLERANCE:
        raise InputError(
            f"`{worst}` of {folder.name} must be answered alike, each signature"
            f" by {TOLERANCE:g}. Received: {differences} by {server}. Mend "
            "tbnets/extras/server."
        )


def _difference(one, other):
    """Returns the largest difference of two tensors, inf of other strings."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype == object or one.shape != other.shape:
        return 0 if np.array_equal(one, other) else np.inf
    worst = np.max(np.abs(one - other), initial=0)
    return float(np.nan_to_num(worst, nan=np.inf))
