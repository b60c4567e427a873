"""Defines the flags of commands that take queries; writes their results."""

import contextlib
import dataclasses
import errno
import importlib.util
import io
import json
import os
import pathlib
import sys

from tbnets import files, lite
from tbnets.data.photos import find_photo, is_listed
from tbnets.data.pictures import open_upright
from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.serving.heat import heat_maps
from tbnets.tasks.settings.flag import flag
from tbnets.text.parsing import short_noun_phrases
from tbnets.visualization import montage, page
from tbnets.visualization.boxes import draw_boxes
from tbnets.visualization.montage import PHOTO_SIZE, draw_sheet, shade

ANSWERS = "answers.png"
"""Default name of the contact sheet."""
OUTPUTS = ("montage", "explain", "html", "json")
"""Flags that name a file to write."""
MOST_ROWS, MOST_ANSWERS = 40, 50
"""Maximum numbers of queries, and of images per query, on a contact sheet."""


def check_outputs(options):
    """Raises an error if an output would overwrite a photo or other output."""
    places = {name: getattr(options, name) for name in OUTPUTS}
    if options.cache and options.images and options.montage is None:
        places["cache"] = os.path.join(options.cache, ANSWERS)
    uses = dict.fromkeys(map(os.path.realpath, options.like), "a photo")
    for name, path in places.items():
        real = pathlib.Path(os.path.realpath(path or STDOUT))
        if path in (None, "", STDOUT) or (real.exists() and not real.is_file()):
            continue
        if options.images and is_listed(real, options.images):
            uses[str(real)] = "among the photos of --images"
        if use := uses.get(str(real)):
            raise InputError(
                f"--{name}",
                "differ from all photos and outputs",
                f"--{name}={getattr(options, name)}, which is {use}",
                "Choose another path.",
            )
        uses[str(real)] = f"the value of --{name}"


def write_montage(options, ids, order, similarities):
    """Writes the contact sheet to --montage or to the cache folder."""
    folder = files.folder_beside(options.images, options.cache)
    path = pathlib.Path(options.montage or folder / ANSWERS)
    queries = [*options.queries, *map(pathlib.Path, options.like)]
    best = order[:MOST_ROWS, :MOST_ANSWERS]
    sheet = montage.draw_montage(
        queries[:MOST_ROWS], ids, best, similarities, options.images
    )
    try:
        if not options.montage:
            files.make_folder_of(options.images, folder)
        files.write_atomically(path, lambda file: sheet.save(file, "PNG"))
    except OSError as error:
        if options.montage:
            raise
        reason = os.strerror(error.errno or errno.EIO)
        print(
            f"note: cannot draw the results to {path}: {reason}. Set "
            "--montage to another path.",
            file=sys.stderr,
        )
    else:
        drawn = f" (the first {MOST_ROWS} queries)"
        drawn *= len(queries) > MOST_ROWS
        print(f"\nThe best images side by side: {path}{drawn}")


def write_explanations(options, model, ids, order):
    """Draws where photos match queries and their noun phrases, to --explain."""
    pictures, advice = {}, ""
    for number, query in enumerate(options.queries[:MOST_ROWS]):
        phrases = [query]
        try:
            phrases += [x for x in short_noun_phrases(query) if x != query]
        except ModuleNotFoundError:
            advice = '. Noun phrases need: pip install "tbnets[parse]"'
        best = [ids[row] for row in order[number, :MOST_ANSWERS]]
        paths = [find_photo(options.images, name) for name in best]
        for place, path in enumerate(filter(None, paths)):
            [maps] = heat_maps(model, [path], phrases)
            photo, _ = open_upright(path, PHOTO_SIZE)
            for row, (phrase, heat) in enumerate(zip(phrases, maps)):
                drawn = shade(photo, heat), [], 2 * PHOTO_SIZE, phrase
                pictures[number, row, place] = draw_boxes(*drawn)
    if not pictures:
        print("\nnote: --explain is not drawn, because the photos are missing.")
        return
    # Each phrase begins a row of the sheet.
    rows = {f"{i} {j}:{k}": pictures[i, j, k] for i, j, k in sorted(pictures)}
    sheet = draw_sheet(rows, "Bright: where the photo matches the words above.")
    files.write_atomically(
        options.explain, lambda file: sheet.save(file, "PNG")
    )
    print(f"\nWhere the words are found: {options.explain}{advice}")


def write_answers_page(options, notes, ids, order, similarities):
    """Writes the results as an HTML page to --html."""
    sections = []
    texts = [note for _, note in notes]
    texts += ["photos like it"] * len(options.like)
    queries = [*options.queries, *options.like]
    for query, note, rows, values in zip(queries, texts, order, similarities):
        names = [ids[row] for row in rows]
        sections.append(page.Section(query, note, names, values))
    about = f"The best of {len(ids):,} photos in {options.images}, found by "
    page.write_page(
        options.html, sections, options.images, about + options.model
    )
    print(f"\nThe results as a page: {options.html}")


MODEL = (
    "Name of a zoo model (model_zoo/README.md); or a run folder of "
    "tools/train.py, whose newest SavedModel is used; or the folder of one "
    "version, RUN/saved_model/1"
)
"""Help of --model, for models on this machine."""
ANY_MODEL = (
    f"{MODEL}; or the address of a model on a server, "
    "http://localhost:8501/NAME."
)
JSON = (
    "JSON file for the results; - writes them to standard output, without "
    "other output."
)
"""Help of --json."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskingFlags:
    """Flags for the model that runs the queries."""

    model: str = flag("flickr8k_photos", ANY_MODEL)
    trust: bool = flag(
        False,
        "Load --model even if its graph has ops that read or write files. "
        "Use it only for models that you trust.",
    )

    def open(self, requirements):
        """Loads --model, which must accept text.

        `requirements` maps each required endpoint to two strings for the error
        message: the requirement and the advice.
        """
        if "://" in self.model:
            from tbnets.extras.server.client import Client

            model = Client.at(self.model)
        else:
            model = zoo.open_model(self.model, self.trust)
        return checked(model, self.model, requirements)


RUNTIMES = ("auto", "litert", "tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeFlags(AskingFlags):
    """Flags for a model that runs in LiteRT or TensorFlow."""

    runtime: str = flag(
        "auto",
        "litert starts at once and needs the package ai-edge-litert and a "
        "LiteRT model (tbnets export --litert; flickr8k_photos has one); "
        "tensorflow runs every model. auto: litert if both are there.",
        choices=RUNTIMES,
    )

    def open(self, requirements):
        """Loads --model like `AskingFlags.open`, but in the chosen runtime."""
        is_local = "://" not in self.model
        is_found = is_local and lite.find(self.model) is not None
        if self.runtime == "auto":
            is_found = is_found and importlib.util.find_spec("ai_edge_litert")
        if self.runtime == "litert" or (self.runtime == "auto" and is_found):
            return checked(lite.load(self.model), self.model, requirements)
        return super().open(requirements)


def whole_images(advice):
    """Returns the `requirements` that a search passes to `AskingFlags.open`."""
    requirement = "be a network for whole images", advice
    return {"embed_image": requirement, "embed_text": requirement}


def check_endpoints(model, name, requirements):
    """Raises an error if a model lacks an endpoint in `requirements`."""
    for endpoint, (requirement, advice) in requirements.items():
        if not model.has(endpoint):
            raise InputError(
                "--model",
                requirement,
                f"--model={name}, which has {sorted(model.signatures)}",
                advice,
            )


def checked(model, name, requirements):
    """Checks that a model has endpoints and accepts words, and returns it."""
    check_endpoints(model, name, requirements)
    if not model.takes_captions:
        raise InputError(
            "--model",
            "take words",
            f"--model={name}, which takes text features",
            "Use a model that was trained on words.",
        )
    return model


STDOUT = "-"
"""File name that means standard output."""


def alone(path):
    """Returns a context manager that hides other output if `path` is "-"."""
    if path == STDOUT:
        return contextlib.redirect_stdout(io.StringIO())
    return contextlib.nullcontext()


def write_answers_json(path, record):
    """Writes the results to --json, if it is set."""
    if path == STDOUT:
        print(json.dumps(record, indent=2, sort_keys=True))
    elif path:
        files.write_json(path, record)
        print(f"\nThe results as JSON: {path}")


def check_text(tool, texts):
    """Raises an error if a sentence is not valid UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                tool,
                "get text in UTF-8",
                f"{text!r}",
                "Convert the text, or set the terminal to UTF-8.",
            ) from error
