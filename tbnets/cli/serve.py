r"""Serve exported models for trials, with the API of TensorFlow Serving.

  python tools/serve.py --model=flickr8k_photos

This command listens on ports 8500 (gRPC) and 8501 (REST) of this machine, and
prints example requests. To serve several models, list them. NAME=FOLDER serves
your own model from a run folder, or from a folder of numbered versions:

  python tools/serve.py --model=flickr8k_photos,own=runs/own

The flags have the same names as those of tensorflow_model_server. They accept
the files that tools/export.py --serving writes:

  python tools/serve.py --model=own=served/own --enable_batching \
      --batching_parameters_file=served/own/batching_parameters.txt

If a new version is added to a folder, the server loads it, warms it up, and
then replaces the old version with it. If a version cannot be loaded, the server
prints the error and keeps the old version. Only requests for embeddings are
batched.

The server is one Python process without encryption or passwords. For
production, use TensorFlow Serving, which serves these folders too
(docs/serving.md). gRPC needs an extra: pip install "tbnets[serving]".
"""

import dataclasses
import functools
import json
import signal
import sys
from typing import Annotated

from google.protobuf import text_format

from tbnets import startup
from tbnets.errors import InputError, import_extra
from tbnets.extras import loopback
from tbnets.extras.server.batching import Batching, read_parameters
from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import StandIn
from tbnets.extras.server.versions import newest
from tbnets.files import CheckedFile
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import Count, Limits, check_pairs, flag

Port = Annotated[int, Limits(0, 65535)]
SENTENCE = "a dog in the snow"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the models, ports and address."""

    model: list[str] = flag(
        ["flickr8k_photos"],
        "Models, separated by commas: zoo names (model_zoo/README.md), run "
        "folders, or folders of versions. NAME=FOLDER sets another name.",
    )
    model_config_file: str = flag(
        "",
        "Replaces --model: a model_config_list of TensorFlow Serving, with "
        "version policies and labels.",
    )
    port: Port = flag(8500, "Port of gRPC; 0 for no gRPC.")
    rest_api_port: Port = flag(8501, "Port of REST; 0 for no REST.")
    host: str = flag(
        loopback.HOST,
        "Address to listen on. With another address than the default, other "
        "machines can send requests.",
    )
    enable_batching: bool = flag(
        False, "Batch the requests of several clients for embeddings."
    )
    batching_parameters_file: str = flag(
        "", "File of batching parameters in TensorFlow Serving's format."
    )
    file_system_poll_wait_seconds: Count = flag(
        1, "Seconds between checks for new versions."
    )
    trust: bool = flag(
        False,
        "Load models even if their graphs have ops that read or write files. "
        "Use it only for models that you trust.",
    )


def folders_of(models):
    """Returns a dict that maps each model name in --model to its folder."""
    if not models:
        raise InputError(
            "--model",
            "name at least one model",
            "none",
            "Leave it out for flickr8k_photos, or write --model=NAME.",
        )
    folders = {}
    for model in models:
        name, _, place = model.rpartition("=")
        path = zoo.locate(place)
        named = path.absolute()
        while named.name.isdecimal() or named.name == "saved_model":
            named = named.parent
        name = name or named.name
        if name in folders or not name or set(name) & set("/:"):
            raise InputError(
                "--model",
                "name each model once, without / and :",
                name,
                f"Write NAME={place}.",
            )
        folders[name] = path
    return folders


def read_config(path):
    """Reads the file given by --model_config_file.

    Returns three dicts keyed by model name. Their values are the model's
    folder, a function that selects the versions to serve, and a dict that maps
    labels to versions.
    """
    file = CheckedFile(path)
    protos = import_extra(
        "serving", "tensorflow_serving.config.model_server_config_pb2"
    )
    config = protos.ModelServerConfig()
    try:
        text_format.Parse("\n".join(file.lines()[0]), config)
    except text_format.ParseError as error:
        reason = str(error).rstrip(".")
        file.report(f"expected a model_config_list; found {reason}.")
    folders, policies, labels = {}, {}, {}
    for model in config.model_config_list.config:
        if model.model_platform not in ("", "tensorflow"):
            file.refuse('model_platform: "tensorflow"', model.model_platform)
        if model.name in folders or not model.name:
            file.refuse("another name for each model", model.name)
        folders[model.name] = zoo.locate(model.base_path)
        policies[model.name] = _policy(model.model_version_policy)
        labels[model.name] = dict(model.version_labels)
    if not folders:
        file.report("expected a model_config_list with models; found none.")
    return folders, policies, labels


def _policy(policy):
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return sorted
    if kind == "specific":
        versions = set(policy.specific.versions)
        return lambda numbers: sorted(versions.intersection(numbers))
    return functools.partial(newest, count=policy.latest.num_versions or 1)


def open_models(options, tell):
    """Returns the `Models` that the flags select."""
    policies, labels = {}, {}
    if options.model_config_file:
        folders, policies, labels = read_config(options.model_config_file)
    else:
        folders = folders_of(options.model)
    batching = None
    if options.enable_batching:
        batching = Batching()
        if options.batching_parameters_file:
            batching = read_parameters(options.batching_parameters_file)
    return Models(
        folders,
        policies=policies,
        labels=labels,
        trust=options.trust,
        batching=batching,
        poll_seconds=options.file_system_poll_wait_seconds,
        tell=tell,
    )


def example_requests(server, host):
    """Returns commands that send requests to the server."""
    name = server.models.names()[0]
    with server.models.using(name) as version:
        texts = [
            (signature, list(version.inputs(signature)))
            for signature in ("embed_text", "embed_phrases")
            if version.served.has(signature) and version.served.takes_captions
        ]
    at = f"http://{host}:{server.rest_port}"
    if server.rest_port is None:
        at = f"grpc://{host}:{server.port}"
    arguments = f"--server={at} --model={name}"
    lines = [f"python tools/ask.py status {arguments}"]
    if texts and server.rest_port is not None:
        [(signature, [column])] = texts[:1]
        body = {"signature_name": signature, "inputs": {column: [SENTENCE]}}
        url = f"{at}/v1/models/{name}:predict"
        lines.append(f"curl {url} -d '{json.dumps(body)}'")
    return lines


def main(options):
    """Serves until Ctrl-C or SIGTERM."""
    if options.port == options.rest_api_port:
        raise InputError(
            "`--port` and `--rest_api_port` must differ, or one must be 0. "
            f"Received: {options.port} for both. Change one."
        )
    check_pairs(options, {"batching_parameters_file": "enable_batching"})
    tell = functools.partial(print, file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not loopback.is_local(options.host):
        tell(
            f"WARNING: with --host={options.host}, every machine on the "
            "network can send requests. Leave --host out to serve only this "
            "machine."
        )
    ports = options.port or None, options.rest_api_port or None
    server = StandIn(open_models(options, tell), options.host, *ports, tell)
    host = loopback.in_url(options.host)
    for name, port in (("gRPC", server.port), ("REST", server.rest_port)):
        if port is not None:
            print(f"{name}  {host}:{port}")
    print("\nSend a request from another terminal:\n")
    for line in example_requests(server, host):
        print(f"  {startup.adapt_commands(line)}")
    print("\nCtrl-C ends.", flush=True)
    try:
        loopback.wait()
    except KeyboardInterrupt:
        print("\nEnding: finishing the current requests.", flush=True)
    finally:
        server.close()
