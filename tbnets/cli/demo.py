r"""Serve a local web page to try the networks.

  tbnets demo photos

This command prints an address, http://127.0.0.1:8080, to open in a browser.
Type a sentence to see the best photos of the folder. Open a photo, or drop your
own, to see matching captions, similar photos and the boxes of phrases such as
"a man, his dog".

  tbnets demo

Without a folder, the command draws 250 scenes, uses the zoo's models for
scenes, and deletes the scenes when it stops.

To use other networks, or your own captions, run:

  tbnets demo --model=runs/own --localizer=runs/boxes \
      --captions=captions.txt photos

By default, the server accepts only requests from this machine. It serves only
re-encoded photos of the folder, and does not store photos that you drop. Ctrl-C
stops the server. Boxes need an extra: pip install "tbnets[regions]".
"""

import contextlib
import dataclasses
import pathlib
import re
import signal
import sys
import tempfile
from typing import Annotated

from tbnets import files, lite
from tbnets.cli.localize import REQUIREMENTS
from tbnets.cli.model_flags import ANY_MODEL, RuntimeFlags, image_requirements
from tbnets.cli.query import read_queries
from tbnets.data import captions as caption_files
from tbnets.data.photos import left_out_lines
from tbnets.data.scenes.dataset import DATASET, ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.errors import ArgumentError, InputError
from tbnets.extras import loopback
from tbnets.extras.demo import FILES, MOST_BYTES, Content, Demo, Photos
from tbnets.serving import search
from tbnets.tasks.settings.flag import Limits, flag

NUM_SCENES = 250
ADVICE = "Leave --model out, or name a model like flickr8k_photos."


PHOTOS = "flickr8k_photos", "entities_localization", "a man, a dog, the ball"
SCENES = "scenes_embedding", "scenes_localization", "a red circle, a star"
"""Default zoo models of a folder or of scenes, and phrases to localize."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RuntimeFlags):
    """Flags for the photos, the networks and the address of the page."""

    folder: list[str] = flag(
        [],
        "Folder of photos, subfolders included. Default: rendered scenes.",
        kind="words",
    )
    model: str | None = flag(
        None,
        f"{ANY_MODEL} Default: flickr8k_photos, or scenes_embedding for "
        "scenes.",
    )
    localizer: str | None = flag(
        None,
        "Network for phrase localization, or empty for no boxes. Default: "
        "entities_localization, or scenes_localization for scenes.",
    )
    captions: str = flag(
        "",
        "Captions to rank for a photo: a text file with one per line, or a "
        "table. Default: captions of everyday life, or of the scenes.",
    )
    cache: str = flag(
        "",
        "Folder that caches the embeddings of the photos. Default: "
        "FOLDER.tbnets next to FOLDER.",
    )
    port: Annotated[int, Limits(0, 65535)] = flag(
        8080, "Port of the page; 0: a free port."
    )
    host: str = flag(
        loopback.HOST,
        "Address to listen on. With another address than the default, other "
        "machines can see and search the photos.",
    )


@contextlib.contextmanager
def open_folder(options):
    """Yields (photo folder, captions, cache). Draws scenes by default."""
    if len(options.folder) > 1:
        received = " ".join(options.folder)
        raise InputError("tbnets demo", "get one folder of photos", received)
    own_captions = options.captions and read_queries(options.captions)
    if options.folder:
        captions = own_captions or read_queries(FILES / "captions.txt")
        yield options.folder[0], captions, options.cache
        return
    with tempfile.TemporaryDirectory(prefix="tbnets_demo_") as place:
        folder = pathlib.Path(place, "scenes")
        ensure_scenes(folder, SceneSettings(0, 0, NUM_SCENES))
        where = folder / DATASET
        texts = caption_files.read_captions(where, "test").captions
        captions = [re.sub(r" (?=[.,])", "", x) for x in dict.fromkeys(texts)]
        captions = own_captions or captions
        yield folder / "images", captions, options.cache or False


def explainer_of(options, model):
    """Returns the model that shows where photos match sentences, or None.

    LiteRT models lack the required signature, `embed_cells`. If
    `--runtime=auto` chose a LiteRT model, and boxes need TensorFlow anyway,
    loads the network in TensorFlow too.
    """
    is_lite = isinstance(model, lite.Model)
    if is_lite and options.runtime == "auto" and options.localizer != "":
        tensorflow = dataclasses.replace(options, runtime="tensorflow")
        model = tensorflow.open(image_requirements(ADVICE))
    return model if model.has("embed_cells") else None


def load_content(options, folder, captions, cache):
    """Loads the networks and returns the content of the page."""
    name, boxes, phrases = PHOTOS if options.folder else SCENES
    name = name if options.model is None else options.model
    boxes = boxes if options.localizer is None else options.localizer
    model_options = dataclasses.replace(options, model=name)
    model = model_options.open(image_requirements(ADVICE))
    if not model.takes_photos:
        advice = "Export its run with --cnn_weights=imagenet."
        raise InputError("--model", "take photos", f"--model={name}", advice)
    localizer = None
    if boxes:
        localizer_options = dataclasses.replace(
            options, model=boxes, runtime="tensorflow"
        )
        try:
            localizer = localizer_options.open(REQUIREMENTS, "--localizer")
        except ArgumentError as error:
            if error.argument == "model":
                error.args = ("--localizer", *error.fields[1:])
            raise
    explainer = explainer_of(model_options, model)
    embeddings = search.embed(model.embed_text, captions, "caption")
    about = {"model": name, "localizer": boxes, "folder": "rendered scenes"}
    if options.folder:
        about["folder"] = files.readable(str(folder))
    photos = Photos(model, folder, cache)
    out = dict.fromkeys(
        photos.links_out, "is a link that leads outside the folder"
    )
    for line in left_out_lines(out, (), len(photos) + len(out)):
        print(line, file=sys.stderr)
    return Content(
        model=model,
        photos=photos,
        captions=captions,
        embeddings=embeddings,
        localizer=localizer,
        phrases=phrases,
        about=about,
        explainer=explainer,
    )


def serve(options, content):
    """Serves the page until Ctrl-C. Embeds the photos in the background."""
    if not loopback.is_local(options.host):
        print(
            f"WARNING: with --host={options.host}, every machine on the "
            "network can see and search the photos.",
            file=sys.stderr,
        )
    app = loopback.LocalApp(Demo(content), options.host, MOST_BYTES)
    server = loopback.server_of(app, options.host, options.port)
    server.start()
    name = loopback.in_url(options.host)
    print(f"The page: http://{name}:{server.port}/  (Ctrl-C ends)", flush=True)
    try:
        content.photos.embed()
        loopback.wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.end()


def main(options):
    """Loads the networks and serves the page."""
    # Deletes drawn scenes even if SIGTERM ends the process.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with open_folder(options) as (folder, captions, cache):
            serve(options, load_content(options, folder, captions, cache))
    finally:
        signal.signal(signal.SIGTERM, before)
