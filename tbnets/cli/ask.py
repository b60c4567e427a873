r"""Send a request to TensorFlow Serving or to tools/serve.py.

The first word is the kind of request:

  python tools/ask.py status
  python tools/ask.py embed --output=a.npy "a dog in the snow" "two children"
  python tools/ask.py embed --images=photos --output=photos.npy
  python tools/ask.py score --images=dog.jpg,photos "a dog in the snow"
  python tools/ask.py search --top=10 "a dog in the snow"
  python tools/ask.py localize --output=drawn.png photo.jpg "a red ball"

- status prints the versions, inputs and outputs of the model.
- embed writes one row per sentence, phrase or photo to --output, a .npy file.
- score compares the photos of --images with sentences.
- search searches the index that tools/export.py --index put into the model.
- localize finds the boxes of phrases among boxes proposed on this machine.

  python tools/ask.py status --server=grpc://localhost:8500 \
      --model=flickr8k_photos --model_version=2

An http:// address selects REST (default port 8501). A grpc:// address selects
gRPC (port 8500), which needs an extra: pip install "tbnets[serving]". If
the model is also in --folder or in the zoo of this machine, the command lists
unknown words and proposes boxes as in training.

tools/query.py can also search with a server's model:

  python tools/query.py --model=http://localhost:8501/flickr8k_photos \
      photos "a dog in the snow"
"""

import dataclasses
import os
import pathlib
import warnings

import numpy as np

from tbnets import files
from tbnets.cli import localize as localizing
from tbnets.cli import query
from tbnets.cli.model_flags import (
    JSON,
    check_model,
    check_text,
    image_requirements,
    quiet_if_stdout,
    write_answers_json,
)
from tbnets.data.photos import list_photos
from tbnets.data.pictures import read_content
from tbnets.errors import InputError, check_choice
from tbnets.extras.server.client import BATCH_SIZE, Client
from tbnets.serving import embedding_cache, formatting, search
from tbnets.tasks.settings.flag import Amount, Count, Whole, check_place, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the request, the server and the outputs."""

    words: list[str] = flag(
        [],
        "The request: status, embed, score, search or localize; then the "
        "sentences or phrases. For localize, photos precede the phrases.",
        kind="words",
    )
    server: str = flag(
        "http://localhost:8501", "http://HOST:PORT or grpc://HOST:PORT."
    )
    model: str = flag(
        "",
        "Name of the model on the server. Default: flickr8k_photos, or "
        "entities_localization for localize.",
    )
    model_version: Whole = flag(0, "Version of the model; 0: the newest.")
    folder: str = flag(
        "",
        "Folder of the served SavedModel on this machine, with the vocabulary "
        "and the settings of box proposals. Default: the zoo model with the "
        "name of --model.",
    )
    images: list[str] = flag([], "Photos, and folders of photos.")
    top: Count | None = flag(
        None, "Number of results per query. Default: 5, or 1 for localize."
    )
    output: str = flag(
        "",
        "Output: for embed, a .npy file, float32 [n, dim]; for localize, a "
        ".png file, or a folder for the pictures.",
    )
    json: str = flag("", JSON)
    timeout: Amount = flag(30, "Timeout in seconds.")
    retries: Whole = flag(3, "Number of retries if the server is unavailable.")
    batch_size: Count = flag(
        BATCH_SIZE, "Maximum number of sentences or photos per request."
    )

    def connect(self):
        """Returns a `Client` for the server."""
        return Client(
            self.server,
            self.model,
            self.model_version or None,
            folder=self.folder or None,
            timeout=self.timeout,
            retries=self.retries,
            batch_size=self.batch_size,
        )

    def open(self, requirements):
        """Connects to the model and checks it for the required endpoints."""
        return check_model(self.connect(), self.model, requirements)


def status(options, texts):
    """Prints a model's versions and signatures. Returns a JSON record."""
    model = options.connect()
    states = model.states()
    print(f"{options.model} at {options.server}")
    for state in states:
        error = state.get("status", {}).get("error_message", "")
        line = f"  version {state['version']}  {state['state']}  {error}"
        print(line.rstrip())
    signatures = {}
    for name, signature in sorted(model.signatures.items()):
        sides = {
            "inputs": _shapes(signature.structured_input_signature[1]),
            "outputs": _shapes(signature.structured_outputs),
        }
        signatures[name] = sides
        columns = (", ".join(map(" ".join, x.items())) for x in sides.values())
        print(f"  {name}: {' -> '.join(columns)}")
    record = {"model": options.model, "server": options.server}
    return {**record, "versions": states, "signatures": signatures}


def _shapes(specs):
    return {
        name: f"{spec.dtype.name} "
        f"[{', '.join('?' if n is None else str(n) for n in spec.shape)}]"
        for name, spec in specs.items()
    }


def ask_embeddings(options, texts):
    """Embeds sentences, phrases or photos. Returns a JSON record."""
    if bool(texts) == bool(options.images):
        raise _missing_input(options, "sentences or --images")
    model = options.connect()
    if texts:
        of_phrases = model.has("embed_phrases")
        rows = (model.embed_phrases if of_phrases else model.embed_text)(texts)
        names = formatting.query_titles(texts, search.notes_on(model, texts))
    else:
        names, rows = ask_photo_embeddings(options, model)
    if options.output:
        files.write_atomically(options.output, lambda file: np.save(file, rows))
        shape = " x ".join(map(str, rows.shape))
        print(f"{shape} embeddings: {options.output}")
    else:
        for name, row in zip(names, rows):
            numbers = " ".join(f"{value:7.4f}" for value in row[:6])
            print(f"{numbers} ... ({len(row)})  {files.readable(name)}")
    pairs = zip(names, rows.tolist())
    records = [{"of": name, "embedding": row} for name, row in pairs]
    return {"model": options.model, "embeddings": records}


def ask_photo_embeddings(options, model):
    """Returns names and embeddings of the readable photos in --images."""
    paths = {}
    for place in options.images:
        if os.path.isdir(place):
            paths |= {str(path): path for path in list_photos(place)}
            continue
        paths[place] = pathlib.Path(place)
        if not os.path.isfile(place):
            read_content(place)  # Its errors name the file.
    return embedding_cache.embed_photos(
        model, ",".join(options.images), paths, batch_size=options.batch_size
    )


def score(options, texts):
    """Compares sentences with photos. Returns a JSON record."""
    advice = "Use localize to find the boxes of phrases."
    model = options.open(image_requirements(advice))
    if not (texts and options.images):
        raise _missing_input(options, "sentences and --images")
    query_options = query.Options(
        queries=texts, model=options.model, top=options.top or 5
    )
    return query.answer_texts(
        query_options, model, ask_photo_embeddings(options, model)
    )


def search_index(options, texts):
    """Searches the model's index for sentences. Returns a JSON record."""
    if not texts:
        raise _missing_input(options, "sentences")
    advice = "Export it with an index: tools/export.py --index=INDEX."
    model = options.open({"search": ("have an index", advice)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Titles list unknown words.
        results = model.search(texts, top=options.top or 5)
    notes, records = search.notes_on(model, texts), []
    titles = formatting.query_titles(texts, notes)
    for text, (unknown, note), title, found in zip(
        texts, notes, titles, results
    ):
        names, values, chances = zip(*found)
        chances = np.array(chances, np.float32)  # None becomes NaN.
        doubts = chances, 0
        table = formatting.format_answers(title, values, names, doubts=doubts)
        print(f"{table}\n")
        rows = range(len(names))
        answers = formatting.answers_record(
            "image", names, rows, values, chances
        )
        record = {"query": text, "unknown_words": unknown, "note": note}
        records.append({**record, "answers": answers})
    return {"model": options.model, "queries": records}


def _missing_input(options, expected):
    question, *texts = options.words
    return InputError(
        f"tools/ask.py {question}",
        f"get {expected}",
        f"{len(texts)} sentences, --images={','.join(options.images)}",
        f'Write for example tools/ask.py {question} "a dog in the snow".',
    )


QUESTIONS = {
    "status": status,
    "embed": ask_embeddings,
    "score": score,
    "search": search_index,
    "localize": None,
}


def main(options):
    """Runs the request named by the first word."""
    question, *texts = options.words or [""]
    check_choice("tools/ask.py", question, QUESTIONS, "Write it first.")
    of_boxes = question == "localize"
    usual = "entities_localization" if of_boxes else "flickr8k_photos"
    options = dataclasses.replace(options, model=options.model or usual)
    if of_boxes:
        return localizing.main(
            dataclasses.replace(options, words=texts, top=options.top or 1)
        )
    check_text("tools/ask.py", texts)
    check_place("output", options.output, ".npy")
    check_place("json", options.json)
    with quiet_if_stdout(options.json):
        record = QUESTIONS[question](options, texts)
    write_answers_json(options.json, record)
