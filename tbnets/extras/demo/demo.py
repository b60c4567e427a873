"""The app behind the page of `tbnets demo`, which returns JSON and JPEGs.

    /, /page.js, /page.css, /icon.svg     the page
    /about                                models, folder and examples
    /search?q=SENTENCE&top=N              photos for a sentence
    /like?photo=KEY&top=N                 photos like a photo
    /captions?photo=KEY                   captions for a photo, from the list or
            &caption=TEXT&caption=...     from these
    /boxes?photo=KEY&phrase=TEXT&...      the boxes that phrases name in a photo
    /picture?photo=KEY&side=400           a photo, as a JPEG
    /photos                               POST of a photo's file: its key

Every query is a GET, so the page's own address can hold it.
"""

import collections
import functools
import hashlib
import os
import pathlib
import threading
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.wrappers import Response

from tbnets.data.images import (
    KINDS,
    BrokenImageError,
    read_photo,
    read_photo_sizes,
)
from tbnets.data.photos import sort_files
from tbnets.errors import InputError, MissingFileError
from tbnets.extras.demo.loopback import in_json
from tbnets.files import readable
from tbnets.serving import photo_index, search
from tbnets.startup import usable_cores
from tbnets.visualization.boxes import COLOURS
from tbnets.visualization.page import jpeg

# The page shows photos of the folder, and uploaded photos. A photo is selected
# by its key, which is looked up in a list, so a request never contains a path.
# Photos are re-encoded, so no other file can be sent.

GIVEN = "given "
"""Prefix of the key of an uploaded photo; no photo of the folder has it."""
MOST_GIVEN = 8
SIDES = (400, 1280)
"""Allowed longer sides of a photo in pixels."""
DRAWN = 256
"""Number of encoded pictures that are cached."""


class Photos:
    """Photos that may be ranked and shown.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, including subfolders.
        cache: as in `photo_index.embed_folder`.

    Attributes:
        links_out: paths of links that lead out of the folder, which are left
            out.

    Raises:
        FileNotFoundError: the folder holds no file named as a photo.
    """

    def __init__(self, model, folder, cache=None):
        self.folder = folder
        self._model, self._root = model, os.path.realpath(folder)
        found, self._others = sort_files(folder)
        self._paths = {n: x for n, x in found.items() if self._is_inside(x)}
        self.links_out = [
            one.path for n, one in found.items() if n not in self._paths
        ]
        if not self._paths:
            raise MissingFileError(
                "`folder` must hold photos. Received: folder="
                f"{folder}, which has links out of it alone. Name that folder."
            )
        self._names = dict(zip(_keys(self._paths), self._paths))
        self._given = collections.OrderedDict()
        self._index = photo_index.Index(cache, model, folder)
        self._embedded = None
        self._lock = threading.Lock()
        # Decoding a photo takes memory, so the number is limited.
        self.decoding = threading.BoundedSemaphore(usable_cores())
        self._draw = functools.lru_cache(DRAWN)(self._drawn)

    def __len__(self):
        """Returns the number of the folder's files named as photos."""
        return len(self._paths)

    @property
    def keys(self):
        """The keys of the folder's photos, except known broken ones."""
        broken = {key for key, one in self._known().items() if one.reason}
        return [key for key in self._names if key not in broken]

    @property
    def num_read(self):
        """Number of photos read so far, good or broken."""
        return len(self._known())

    def _known(self):
        """Returns the folder's photos read so far: key -> `Entry`."""
        known = dict(self._index.entries)  # Copied: a thread may add.
        return {k: known[n] for k, n in self._names.items() if n in known}

    def embed(self):
        """Embeds new photos of the folder; other threads may search meanwhile.

        Raises: as `photo_index.embed_photos`.
        """
        photo_index.embed_photos(
            *(self._model, self.folder, self._paths),
            *(self._others, self._index),
        )
        self._embedded = self.embedded()

    def embedded(self):
        """Returns the keys and the embeddings of the photos embedded so far."""
        if self._embedded:
            return self._embedded
        known = self._known().items()
        found = {key: one.embedding for key, one in known if not one.reason}
        rows = np.float32([*found.values()])
        return list(found), rows.reshape(len(found), self._model.embedding_dim)

    def give(self, content):
        """Stores an uploaded photo; drops the oldest beyond `MOST_GIVEN`.

        Args:
            content: bytes of the photo's file.

        Returns:
            The photo's key.

        Raises:
            BrokenImageError: the content is not a photo.
        """
        with self.decoding:
            read_photo(content)
        key = GIVEN + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._given[key] = content
            self._given.move_to_end(key)
            while len(self._given) > MOST_GIVEN:
                self._given.popitem(last=False)
        return key

    def find(self, key):
        """Returns a photo's path or, if uploaded, its bytes.

        Raises:
            FileNotFoundError: there is no such photo, or it is outside the
                folder.
        """
        if given := self._given.get(key):
            return given
        path = self._paths.get(self._names.get(key))
        if path is None or not self._is_inside(path):
            raise MissingFileError(
                "`photo` must be one that is served. Received: "
                f"photo={readable(key)}. Choose or drop it again; of one that "
                "is new in the folder, start tbnets demo again."
            )
        return path.path

    def picture(self, key, side):
        """Returns a photo as a JPEG, as the network sees it.

        Args:
            key: key of the photo.
            side: maximum length of the photo's longer side in pixels, in
                `SIDES`.

        Raises:
            FileNotFoundError, BrokenImageError: there is no such photo, or it
                is broken.
        """
        found = self.find(key)
        is_file = isinstance(found, str)
        stamp = is_file and photo_index.stamp_of(pathlib.Path(found))
        return self._draw(found, stamp, side)

    def _drawn(self, photo, stamp, side):
        with self.decoding:
            return jpeg(PIL.Image.fromarray(read_photo(photo)), side)

    def _is_inside(self, path):
        """Returns whether a file, after following links, is in the folder."""
        real = os.path.realpath(path)
        return os.path.commonpath([real, self._root]) == self._root


def _keys(names):
    """Yields a unique, readable key for each name."""
    seen = set()
    for row, name in enumerate(names):
        key = readable(name)
        key = f"{key} ({row})" if key in seen else key
        seen.add(key)
        yield key


FILES = pathlib.Path(__file__).with_name("page")
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
MOST_BYTES = 32 * 2**20
"""Maximum size of an uploaded photo's file."""
MOST_LETTERS, MOST_TEXTS = 500, 50
"""Maximum length of a sentence; maximum number of sentences in a query."""
MOST_ANSWERS, CAPTIONS_SHOWN = 240, 8
COSINE = "A score is a cosine: 1 is identical, 0 is unrelated."
LEARNED = "A score compares answers to one question: more is better."


class Shown(NamedTuple):
    """The models and data of the page.

    Args:
        model: a `Served` of photos and sentences.
        photos: `Photos`.
        captions: list of captions to rank for a photo.
        embeddings: float32 `[len(captions), embedding_dim]` of the captions.
        localizer: a `Served` of phrase localization; None without boxes.
        phrases: example phrases to find in a photo.
        about: dict of further facts for the page.
    """

    model: Any
    photos: Photos
    captions: list
    embeddings: np.ndarray
    localizer: Any = None
    phrases: str = ""
    about: dict = {}


class Demo:
    """Handles requests; returns JSON and JPEGs."""

    def __init__(self, shown):
        self.shown = shown
        self._answers = {
            "/about": self._about,
            "/search": self._search,
            "/like": self._like,
            "/captions": self._captions,
            "/boxes": self._boxes,
        }

    def __call__(self, request):
        """Returns the `Response` to a request.

        Raises:
            UserError: the request has no result; the message gives the reason.
            HTTPException: the path is unknown, or the request is not a GET.
        """
        if request.path == "/photos":
            return self._give(request)
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(["GET"], "Only /photos takes a POST.")
        if request.path in PAGE:
            name, kind = PAGE[request.path]
            content = (FILES / name).read_bytes()
            return Response(content, mimetype=kind)
        if request.path == "/picture":
            return self._picture(request)
        if request.path not in self._answers:
            raise NotFound("This address does not exist.")
        return in_json(self._answers[request.path](request))

    def _about(self, request):
        shown = self.shown
        return {
            **shown.about,
            "photos": len(shown.photos),
            "read": shown.photos.num_read,
            "captions": len(shown.captions),
            "examples": _some(shown.captions, 5),
            "some": _some(shown.photos.keys, 12),
            "phrases": shown.phrases,
            "finds_boxes": shown.localizer is not None,
            "finds_like": not shown.model.has("compare"),
            "score": _score_of(shown.model),
            "box_score": shown.localizer and _score_of(shown.localizer),
            "colours": COLOURS,
            "most_bytes": MOST_BYTES,
        }

    def _search(self, request):
        sentence = _texts(request, "q")[:1]
        [(unknown, note)] = search.notes_on(self.shown.model, sentence)
        answers = self._ranked(request, sentence, ())
        return {"unknown_words": unknown, "note": note, **answers}

    def _like(self, request):
        photo, key = self._photo(request), request.args["photo"]
        with self.shown.photos.decoding:
            return self._ranked(request, (), [photo], key)

    def _ranked(self, request, queries, like, but=""):
        """Ranks the embedded photos, except `but`, for one query."""
        keys, rows = self.shown.photos.embedded()
        top = min(max(request.args.get("top", 0, int), 1), MOST_ANSWERS)
        if not keys:
            return {"among": 0, "answers": []}
        # One more, for the photo that finds itself.
        order, values = search.rank(
            self.shown.model, queries, like, rows, top + 1
        )
        answers = search.answers_record("image", keys, order[0], values[0])
        answers = [one for one in answers if one["image"] != but][:top]
        return {"among": len(keys) - (but in keys), "answers": answers}

    def _captions(self, request):
        model, photo = self.shown.model, self._photo(request)
        captions, rows = self.shown.captions, self.shown.embeddings
        if "caption" in request.args:
            captions = _texts(request, "caption")
            rows = search.embed(model.embed_text, captions, "caption")
        with self.shown.photos.decoding:
            query = search.embed_examples(model, [photo])
        order, values = search.best(model.compare(query, rows), CAPTIONS_SHOWN)
        told = search.answers_record("caption", captions, order[0], values[0])
        return {"among": len(captions), "answers": told}

    def _boxes(self, request):
        localizer, phrases = self.shown.localizer, _texts(request, "phrase")
        photo = self._photo(request)
        if localizer is None:
            raise InputError(
                "--localizer",
                "name a network of phrase localization",
                "none",
                "Start tbnets demo with one.",
            )
        with self.shown.photos.decoding:
            [[width, height]] = read_photo_sizes([photo]).tolist()
            found = localizer.find(phrases, photo)
        notes = search.notes_on(localizer, phrases)
        told = search.regions_record(phrases, notes, found)
        return {"width": width, "height": height, "phrases": told}

    def _photo(self, request):
        return self.shown.photos.find(request.args.get("photo", ""))

    def _picture(self, request):
        side = request.args.get("side", SIDES[0], int)
        if side not in SIDES:
            raise NotFound(f"`side` must be one of {SIDES}.")
        picture = self.shown.photos.picture(request.args.get("photo", ""), side)
        headers = {"Cache-Control": "private, max-age=300"}
        return Response(picture, headers=headers, mimetype="image/jpeg")

    def _give(self, request):
        if request.method != "POST":
            raise MethodNotAllowed(["POST"], "/photos takes a POST alone.")
        try:
            key = self.shown.photos.give(request.get_data())
        except BrokenImageError as error:
            raise InputError(
                f"This file is not a photo: it {error.reason}. Choose a file "
                f"of {KINDS}."
            ) from error
        return in_json({"photo": key})


def _texts(request, name):
    """Returns the sentences of a query, after checking number and length."""
    texts = list(filter(None, map(str.strip, request.args.getlist(name))))
    if not 0 < len(texts) <= MOST_TEXTS:
        raise InputError(
            name,
            f"be given, {MOST_TEXTS} times at most",
            f"{len(texts)}",
            "Type some words, or fewer lines.",
        )
    longest = max(map(len, texts))
    if longest > MOST_LETTERS:
        raise InputError(
            name,
            f"have {MOST_LETTERS} letters at most",
            f"{longest}",
            "Use fewer words.",
        )
    return texts


def _score_of(model):
    return LEARNED if model.has("compare") else COSINE


def _some(things, most):
    return things[:: max(1, len(things) // most)][:most]
