r"""Serve exported models for trials, with a part of TensorFlow Serving's API.

  tbnets serve --model=flickr8k_photos

This command listens on ports 8500 (gRPC) and 8501 (REST) of this machine, and
prints example requests. To serve several models, list them. NAME=FOLDER serves
your own model from a run folder, or from a folder of numbered versions:

  tbnets serve --model=flickr8k_photos,own=runs/own

If a new version is added to a folder, the server loads it, warms it up, and
then replaces the old version with it. If a version cannot be loaded, the server
prints the error and keeps the old version.

The server is one Python process without encryption or passwords. For
production, use TensorFlow Serving, which serves these folders too
(docs/serving.md). gRPC needs an extra: pip install "tbnets[serving]". Without
it, pass --port=0.
"""

import contextlib
import dataclasses
import functools
import os
import signal
import sys
from typing import Annotated

from tbnets.cli.model_flags import TrustFlag
from tbnets.errors import InputError
from tbnets.extras import loopback
from tbnets.extras.server.grpc_service import grpc_server, start_grpc
from tbnets.extras.server.models import Models
from tbnets.extras.server.rest import rest_app
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import Limits, flag

Port = Annotated[int, Limits(0, 65535)]
EXAMPLE = '{"instances": ["a dog in the snow"]}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(TrustFlag):
    """Flags for the models, ports and address."""

    model: list[str] = flag(
        ["flickr8k_photos"],
        "Models, separated by commas: zoo names (model_zoo/README.md), run "
        "folders, folders of versions, or Keras Hub presets (hub:PRESET). "
        "NAME=MODEL sets another name.",
    )
    port: Port = flag(8500, "Port of gRPC; 0 for no gRPC.")
    rest_api_port: Port = flag(8501, "Port of REST; 0: a free port.")
    host: str = flag(
        loopback.HOST,
        "Address to listen on. With another address than the default, other "
        "machines can send requests.",
    )


def folders_of(models):
    """Returns a dict that maps each model name in --model to its folder."""
    folders = {}
    for model in models or [""]:
        name, _, place = model.rpartition("=")
        path = zoo.locate(place)
        named = path.absolute()
        while named.name.isdecimal() or named.name == "saved_model":
            named = named.parent
        name = name or named.name
        if name in folders or not name or set(name) & set("/:"):
            expected = "name each model once, without / and :"
            raise InputError("--model", expected, f"{name}={place}")
        folders[name] = path
    return folders


@contextlib.contextmanager
def serving(models, host=loopback.HOST, port=0, rest_port=0):
    """Serves `Models`; yields the gRPC port and the REST port.

    Port 0 stands for any free port; `port=None` disables gRPC. The ports are
    opened before the models are loaded. At the end, running requests are
    finished.
    """
    app = rest_app(models, host)
    rest = loopback.server_of(app, host, rest_port, "rest_api_port")
    grpc = None
    if port is not None:
        grpc, port = grpc_server(host, port)
    models.start()
    rest.start()
    if grpc:
        start_grpc(grpc, models)
    try:
        yield port, rest.port
    finally:
        stopped = grpc and grpc.stop(loopback.GRACE)
        rest.end()
        if stopped:
            stopped.wait()
        models.close()


def main(options):
    """Serves until Ctrl-C or SIGTERM."""
    tell = functools.partial(print, file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not loopback.is_local(options.host):
        tell(f"WARNING: other machines can use --host={options.host}.")
    models = Models(folders_of(options.model), options.trust, tell=tell)
    ports = options.port or None, options.rest_api_port
    try:
        with serving(models, options.host, *ports) as (port, rest_port):
            address = f"http://{loopback.in_url(options.host)}:{rest_port}"
            url = f"{address}/v1/models/{models.names()[0]}"
            print(
                f"REST {address}, gRPC port {port or 'off'}\n\n"
                "Send a request from another terminal:\n\n"
                f"  tbnets ask status --server={address}\n"
                f"  curl {url}:predict -d '{EXAMPLE}'\n\nCtrl-C ends.",
                flush=True,
            )
            loopback.wait()
    except KeyboardInterrupt:
        print("\nThe server has ended.", flush=True)
        os._exit(0)  # Destroying the models would take seconds.
