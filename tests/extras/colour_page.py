"""A page over photos of plain colours, by networks that look at the mean."""

import io
import pathlib
import types

import numpy as np
import PIL.Image

from tbnets.data.images import fault_of, read_photo
from tbnets.evaluation.boxes import clip_boxes
from tbnets.extras.demo import Content, Demo, Photos
from tbnets.serving.served import Served
from tbnets.text.vocabulary import Vocabulary

COLOURS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}
HOSTILE = "<img src=x onerror=alert(1)>&quot;.png"
CAPTIONS = ["red", "</a><script>alert(1)</script> green", "blue & green"]


class Colours:
    """Stands for a `Served` of photos and sentences, and of phrases."""

    vocabulary = Vocabulary(("", "[UNK]", *COLOURS))
    takes_photos = True
    embedding_dim = 3
    metadata = {}
    signatures = ("embed_image", "embed_text")

    def __init__(self, path):
        (path / "variables").mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"graph")
        self.path = path

    def has(self, *names):
        return "compare" not in names

    def embed_text(self, texts):
        return _unit([[text.count(one) for one in COLOURS] for text in texts])

    def try_images(self, photos):
        contents = [
            one if isinstance(one, bytes) else pathlib.Path(one).read_bytes()
            for one in photos
        ]
        reasons = [fault_of(one) or "" for one in contents]
        rows = [
            [0, 0, 0] if reason else _mean(content)
            for content, reason in zip(contents, reasons)
        ]
        return _unit(rows), reasons

    def embed_cells(self, photos):
        """Looks at each pixel."""
        [photo] = photos
        return read_photo(photo)[None] / np.float32(255)

    heat_maps = Served.heat_maps

    def compare(self, first, second):
        return first @ second.T

    def find(self, phrases, photo):
        boxes = np.float32([[0, 0, 20, 10], [5, 2, 20, 10]])
        return [
            [(clip_boxes(boxes[:1], 20, 10)[0], 0.5)]
            if "nothing" not in phrase
            else []
            for phrase in phrases
        ]


def _mean(content):
    with PIL.Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert("RGB"), float).mean((0, 1)) / 255


def _unit(rows):
    rows = np.float32(rows).reshape(len(rows), 3)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def png(colour, size=(20, 10)):
    """Returns a photo of one colour as the content of a file."""
    file = io.BytesIO()
    PIL.Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def write_photos(folder):
    """Writes the photos, one broken, some that lie elsewhere by a link."""
    (folder / "photos" / "more").mkdir(parents=True)
    (folder / "outside.png").write_bytes(png("white"))
    photos = folder / "photos"
    for name, colour in {
        "red.png": COLOURS["red"],
        "more/green.png": COLOURS["green"],
        HOSTILE: COLOURS["blue"],
    }.items():
        (photos / name).write_bytes(png(colour))
    (photos / "cut.png").write_bytes(png("black")[:-20])
    (photos / "notes.txt").write_text("a secret")
    (photos / "out.png").symlink_to(folder / "outside.png")
    (photos / "in.png").symlink_to(photos / "red.png")
    return photos


def content_of(folder, **more):
    """Writes photos to a folder and returns the `Content` of their page."""
    model = Colours(folder / "model")
    photos = Photos(model, write_photos(folder), False)
    about = {"model": "colours", "localizer": "", "folder": "photos"}
    rows = model.embed_text(CAPTIONS)
    options = {"localizer": model, "about": about, "phrases": "a ball", **more}
    options.setdefault("explainer", model)
    return Content(model, photos, CAPTIONS, rows, **options)


def app(folder, **more):
    """Returns the `Demo` and its `Content`, with all photos embedded."""
    content = content_of(folder, **more)
    content.photos.embed()
    return types.SimpleNamespace(demo=Demo(content), content=content)
