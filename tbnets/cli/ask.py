r"""Send a request to `tbnets serve` or TensorFlow Serving, over REST.

The first word is the kind of request:

  tbnets ask status
  tbnets ask embed --output=a.npy "a dog in the snow" "two children"
  tbnets ask embed --images=photos --output=photos.npy
  tbnets ask search --top=10 "a dog in the snow"

- status prints the version, inputs and outputs of the model.
- embed writes one row per sentence, phrase or photo to --output, a .npy file.
- search searches the index that tbnets export --index put into the model.

To rank photos of this machine with a server's model, or to find boxes:

  tbnets query --model=http://localhost:8501/flickr8k_photos photos "a dog"
  tbnets localize --model=http://localhost:8501/NAME photo.jpg "a red ball"
"""

import dataclasses

import numpy as np

from tbnets import files
from tbnets.errors import InputError, check_choice
from tbnets.extras.server import client
from tbnets.serving.embedding_cache import embed_folder
from tbnets.tasks.settings.flag import Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the request, the server and the output."""

    words: list[str] = flag(
        [], "status, embed or search; then the sentences.", kind="words"
    )
    server: str = flag("http://localhost:8501", "http://HOST:PORT.")
    model: str = flag("", "Model on the server. Default: its only model.")
    images: str = flag("", "Folder of photos to embed.")
    top: Count = flag(5, "Number of results per sentence.")
    output: str = flag("embeddings.npy", "For embed: float32 [n, dim].")


def connect(options):
    """Returns a `Client` for --model, or for the only model of the server."""
    if options.model:
        return client.Client(options.server, options.model)
    names = client.ask(f"{options.server}/v1/models", timeout=30)["models"]
    if len(names) != 1:
        raise InputError("--model", "name one", ", ".join(names), "Add it.")
    return client.Client(options.server, names[0])


def print_status(model):
    """Prints the version, the inputs (>) and the outputs (<) of a model."""
    for state in client.ask(model.url, timeout=30)["model_version_status"]:
        print(f"{model.path} version {state['version']}  {state['state']}")
    for name, signature in sorted(model.signatures.items()):
        inputs = signature.structured_input_signature[1]
        print(f"  {name}")
        for arrow, specs in (">", inputs), ("<", signature.structured_outputs):
            for key, spec in specs.items():
                print(f"    {arrow} {key} {spec.dtype.name} {spec.shape}")


def embed(options, model, texts):
    """Embeds sentences, phrases or photos."""
    if options.images:
        rows = embed_folder(model, options.images, cache=False)[1]
    elif model.has("embed_phrases"):
        rows = model.embed_phrases(texts)
    else:
        rows = model.embed_text(texts)
    files.write_atomically(options.output, lambda file: np.save(file, rows))
    print(f"{len(rows)} x {rows.shape[1]} embeddings: {options.output}")


def main(options):
    """Runs the request named by the first word."""
    request, *texts = options.words or [""]
    check_choice("tbnets ask", request, ("status", "embed", "search"))
    model = connect(options)
    if request == "status":
        return print_status(model)
    if request == "embed":
        return embed(options, model, texts)
    for text, row in zip(texts, model.search_own_index(texts, options.top)):
        print(text)
        for answer in row:
            print(f"  {answer.similarity:.3f}  {answer.image}")
