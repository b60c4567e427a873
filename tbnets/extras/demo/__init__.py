"""The web application of `tbnets demo`, which returns JSON and JPEGs.

::

    /, /page.js, /page.css, /icon.svg     the page
    /about                                models, folder and examples
    /search?q=SENTENCE&top=N              photos for a sentence
    /like?photo=KEY&top=N                 photos similar to a photo
    /captions?photo=KEY                   captions for a photo, from the list or
            &caption=TEXT&caption=...     from the query
    /boxes?photo=KEY&phrase=TEXT&...      the boxes that phrases name in a photo
    /picture?photo=KEY&side=400           a photo, as a JPEG
            &q=SENTENCE                   bright where the sentence is found
    /photos                               POST of a photo; returns its key

Every query is a GET request, so that the page's address can contain the query.
"""

import hashlib
import os
import pathlib
import threading
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound
from werkzeug.wrappers import Response

from tbnets.data.images import read_photo, read_photo_sizes
from tbnets.data.photos import sort_files
from tbnets.data.pictures import KINDS, BrokenImageError
from tbnets.errors import InputError, MissingFileError
from tbnets.extras.loopback import in_json
from tbnets.files import readable
from tbnets.serving import embedding_cache, search
from tbnets.startup import usable_cores
from tbnets.visualization.boxes import COLOURS
from tbnets.visualization.montage import shade
from tbnets.visualization.page import jpeg

# The page shows photos of the folder and uploaded photos. A request selects a
# photo by its key, never by a path. Photos are encoded again, so no other file
# can be sent.

UPLOADED = "uploaded "
"""Prefix of the keys of uploaded photos."""
MOST_UPLOADED = 8
SIDES = (400, 1280)
"""Allowed lengths of a photo's longer side in pixels."""


class Photos:
    """The photos that the page ranks and displays.

    `model` is a `Served` that takes photos. `cache` is that of
    `embedding_cache.EmbeddingCache`. `links_out` lists the links that are
    ignored because their targets are outside the folder.
    """

    def __init__(self, model, folder, cache=None):
        self.folder = folder
        self._model, self._root = model, os.path.realpath(folder)
        paths, self._others = sort_files(folder)
        self._paths = {n: x for n, x in paths.items() if self._is_inside(x)}
        self.links_out = [
            path.path for n, path in paths.items() if n not in self._paths
        ]
        if not self._paths:
            received = f"{folder}, which only links to photos outside it"
            raise MissingFileError("folder", "contain photos", received)
        self._names = dict(zip(_keys(self._paths), self._paths))
        self._uploaded = {}
        self._index = embedding_cache.EmbeddingCache(model, folder, cache)
        self._embedded = None
        self._lock = threading.Lock()
        # Limits the memory of concurrent decoding.
        self.decoding = threading.BoundedSemaphore(usable_cores())

    def __len__(self):
        return len(self._paths)

    @property
    def keys(self):
        """The keys of the folder's photos that are not known to be broken."""
        reasons = self._index.vectors.features().failed
        return [key for key, x in self._names.items() if x not in reasons]

    @property
    def num_read(self):
        """Number of photos read so far, including broken photos."""
        features = self._index.vectors.features()
        return len(features.row_of_id) + len(features.failed)

    def embed(self):
        """Embeds new photos in the folder. Other threads can still search."""
        self._index.embed(self._paths, self._others)
        self._embedded = self.embedded()

    def embedded(self):
        """Returns the keys and the embeddings of the photos embedded so far."""
        if self._embedded:
            return self._embedded
        features = self._index.vectors.features()
        rows = features.row_of_id
        names = {key: x for key, x in self._names.items() if x in rows}
        array = features.take(features.rows([*names.values()]))
        return [*names], array.reshape(len(names), self._model.embedding_dim)

    def upload(self, content):
        """Stores an uploaded photo, drops old uploads, and returns its key."""
        with self.decoding:
            read_photo(content)
        key = UPLOADED + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._uploaded.pop(key, None)
            self._uploaded[key] = content
            for old_key in list(self._uploaded)[:-MOST_UPLOADED]:
                del self._uploaded[old_key]
        return key

    def find(self, key):
        """Returns the path of a photo, or the bytes of an uploaded photo."""
        if content := self._uploaded.get(key):
            return content
        path = self._paths.get(self._names.get(key))
        if path is None or not self._is_inside(path):
            expected = "be a photo of this page; upload it again"
            raise MissingFileError("photo", expected, readable(key))
        return path.path

    def picture(self, key, side, explainer=None, text=""):
        """Returns an upright photo as a JPEG.

        `side` is the maximum length of the longer side in pixels. If there is
        an `explainer`, the JPEG is dark where the photo does not match `text`.
        """
        photo = self.find(key)
        with self.decoding:
            picture = PIL.Image.fromarray(read_photo(photo))
            if explainer is not None:
                picture.thumbnail((side, side))
                [[heat]] = explainer.heat_maps([photo], [text])
                picture = PIL.Image.fromarray(shade(picture, heat))
            return jpeg(picture, side)

    def _is_inside(self, path):
        real = os.path.realpath(path)
        return os.path.commonpath([real, self._root]) == self._root


def _keys(names):
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
"""Maximum size in bytes of an uploaded file."""
MOST_LETTERS, MOST_TEXTS = 500, 50
"""Maximum length of a sentence, and maximum number of sentences in a query."""
MOST_ANSWERS, CAPTIONS_SHOWN = 240, 8
COSINE = "A score is a cosine: 1 is identical, 0 is unrelated."
LEARNED = "Scores rank the results of one query: larger is better."


class Content(NamedTuple):
    """The models and data that the page uses.

    Args:
        model: a `Served` that takes photos and sentences.
        photos: `Photos`.
        captions: list of captions to rank for a photo.
        embeddings: float32 `[len(captions), embedding_dim]`.
        localizer: a `Served` for phrase localization, or None.
        phrases: example phrases to find in a photo.
        about: additional values for `/about`.
        explainer: a `Served` with the signature `embed_cells`, or None.
    """

    model: Any
    photos: Photos
    captions: list
    embeddings: np.ndarray
    localizer: Any = None
    phrases: str = ""
    about: dict = {}
    explainer: Any = None


class Demo:
    """Handles the requests of the page."""

    def __init__(self, content):
        self.content = content
        self._answers = {
            "/about": self._about,
            "/search": self._search,
            "/like": self._like,
            "/captions": self._captions,
            "/boxes": self._boxes,
        }

    def __call__(self, request):
        """Returns the `Response` to a request."""
        if request.path == "/photos":
            return self._upload(request)
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(["GET"], "Only /photos accepts a POST.")
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
        content = self.content
        return {
            **content.about,
            "photos": len(content.photos),
            "read": content.photos.num_read,
            "captions": len(content.captions),
            "examples": _some(content.captions, 5),
            "some": _some(content.photos.keys, 12),
            "phrases": content.phrases,
            "finds_boxes": content.localizer is not None,
            "explains": content.explainer is not None,
            "finds_like": not content.model.has("compare"),
            "score": _score_of(content.model),
            "box_score": content.localizer and _score_of(content.localizer),
            "colours": COLOURS,
            "most_bytes": MOST_BYTES,
        }

    def _search(self, request):
        sentence = _texts(request, "q")[:1]
        [(unknown, note)] = search.notes_on(self.content.model, sentence)
        answers = self._ranked(request, sentence, ())
        return {"unknown_words": unknown, "note": note, **answers}

    def _like(self, request):
        photo, key = self._photo(request), request.args["photo"]
        with self.content.photos.decoding:
            return self._ranked(request, (), [photo], key)

    def _ranked(self, request, queries, like, but=""):
        keys, rows = self.content.photos.embedded()
        top = min(max(request.args.get("top", 0, int), 1), MOST_ANSWERS)
        if not keys:
            return {"among": 0, "answers": []}
        # One more result, since a query photo finds itself.
        ranked = search.rank(self.content.model, queries, like, rows, top + 1)
        best = (array[0] for array in ranked)
        answers = search.answers_record("image", keys, *best)
        answers = [answer for answer in answers if answer["image"] != but][:top]
        return {"among": len(keys) - (but in keys), "answers": answers}

    def _captions(self, request):
        model, photo = self.content.model, self._photo(request)
        captions, rows = self.content.captions, self.content.embeddings
        if "caption" in request.args:
            captions = _texts(request, "caption")
            rows = search.embed(model.embed_text, captions, "caption")
        with self.content.photos.decoding:
            query = search.embed_examples(model, [photo])
        order, values = search.best(model.compare(query, rows), CAPTIONS_SHOWN)
        record = search.answers_record("caption", captions, order[0], values[0])
        return {"among": len(captions), "answers": record}

    def _boxes(self, request):
        localizer, phrases = self.content.localizer, _texts(request, "phrase")
        photo = self._photo(request)
        if localizer is None:
            raise BadRequest("Restart tbnets demo with --localizer.")
        with self.content.photos.decoding:
            [[width, height]] = read_photo_sizes([photo]).tolist()
            regions = localizer.find(phrases, photo)
        notes = search.notes_on(localizer, phrases)
        answers = search.regions_record(phrases, notes, regions)
        return {"width": width, "height": height, "phrases": answers}

    def _photo(self, request):
        return self.content.photos.find(request.args.get("photo", ""))

    def _picture(self, request):
        side = request.args.get("side", SIDES[0], int)
        if side not in SIDES:
            raise NotFound(f"`side` must be one of {SIDES}.")
        words = [request.args.get("photo", ""), side]
        if "q" in request.args:
            if self.content.explainer is None:
                raise BadRequest("The model lacks the signature embed_cells.")
            words += [self.content.explainer, _texts(request, "q")[0]]
        picture = self.content.photos.picture(*words)
        headers = {"Cache-Control": "private, max-age=300"}
        return Response(picture, headers=headers, mimetype="image/jpeg")

    def _upload(self, request):
        if request.method != "POST":
            raise MethodNotAllowed(["POST"], "/photos accepts only a POST.")
        try:
            key = self.content.photos.upload(request.get_data())
        except BrokenImageError as error:
            raise InputError(
                f"This file is not a photo of {KINDS}: it {error.reason}."
            ) from error
        return in_json({"photo": key})


def _texts(request, name):
    texts = list(filter(None, map(str.strip, request.args.getlist(name))))
    if not 0 < len(texts) <= MOST_TEXTS:
        raise InputError(name, f"have 1 to {MOST_TEXTS} lines", len(texts))
    longest = max(map(len, texts))
    if longest > MOST_LETTERS:
        expected = f"have at most {MOST_LETTERS} characters"
        raise InputError(name, expected, longest)
    return texts


def _score_of(model):
    return LEARNED if model.has("compare") else COSINE


def _some(values, count):
    return values[:: max(1, len(values) // count)][:count]
