"""Reads phrases and boxes of one's own: `.jsonl`, a phrase with a box a line.

    {"image": "a.jpg", "phrase": "a red ball", "box": [10, 20, 110, 120]}

Boxes are x_min, y_min, x_max, y_max in pixels of the upright photo, or of
another size that `width` and `height` tell.
"""

import collections
import posixpath
import re

from tbnets.checked_files import CheckedFile, shown
from tbnets.data.phrase_markup import ImagePhrases, MarkedCaption, MarkedPhrase
from tbnets.identity import letters

NEEDED = ("image", "phrase", "box")
MOST_PIXELS = 10**9
"""Bound of a photo's side, and of an edge of a box."""
_TYPE = re.compile(r"[^\s/\[\]]+")


def read_phrase_table(path, images, problems) -> list[ImagePhrases]:
    """Reads the `.jsonl` table `image, phrase, box`.

    Beside them, a row may have `caption` (the sentence; without, the phrase
    is its own), `type` (a name or a list of them), `chain` (what the phrase
    names: rows of an image that name one thing share one box, around all
    that they give), `width` and `height`. Without `chain`, phrases of an
    image name the same thing where their boxes are equal.
    """
    file = CheckedFile(path, problems)
    found = {}
    for line, row in file.json_rows(NEEDED):
        _read_row(file, line, row, found)
    if not found and not problems:
        file.report(f"expected rows of {', '.join(NEEDED)}; found none.")
    if images is None:
        images = {name: name for name in sorted(found)}
    records, nothing = [], _nothing((0, 0))
    for key, name in images.items():
        paths = map(posixpath.normpath, (name, key))
        image = next(filter(None, map(found.get, paths)), nothing)
        captions = [
            MarkedCaption(number, text, tuple(phrases))
            for number, (text, phrases) in enumerate(image.captions.items())
        ]
        new = {"image_id": key, "file_name": name, "captions": captions}
        records.append(image._replace(**new))
    return records


def _nothing(size):
    """Returns an image of which no row has spoken; captions are a dict yet."""
    return ImagePhrases("", "", size, {}, {}, collections.Counter())


def _read_row(file, line, row, found):
    """Adds a row to what was found, unless something is wrong with it."""
    image = row["image"]
    image = image.strip() if isinstance(image, str) else image
    name = file.file_name(image, line)
    text = _words(file, line, row["phrase"], "phrase")
    caption = text
    if "caption" in row:
        caption = _words(file, line, row["caption"], "caption")
    types = _types(file, line, row.get("type", []))
    size = _size(file, line, row)
    chain = _chain(file, line, row.get("chain", ""))
    box = size and _box(file, line, row["box"], *size)
    if None in (name, text, caption, types, chain, box):
        return
    entry = found.setdefault(posixpath.normpath(name), _nothing(size))
    if entry.size != size:
        wanted = f"all rows of an image to have one size, {entry.size}"
        file.refuse(wanted, size, line)
        return
    known = entry.captions.get(caption, [])
    chain = chain or "@" + ",".join(f"{edge:g}" for edge in box)
    if not any((p.text, p.chain) == (text, chain) for p in known):
        span = _span(text, caption, {(p.first, p.end) for p in known})
        if span is None:
            file.refuse(f"words of the caption {shown(caption)}", text, line)
            return
        known.append(MarkedPhrase(text, *span, chain, types))
    entry.captions[caption] = known
    entry.boxes.setdefault(chain, []).append(box)


def _words(file, line, value, what):
    """Returns the words of a text with single blanks between, or None."""
    text = file.caption(value, line)
    if text == "":
        file.report(f"expected the words of a {what}; found none.", line)
    return " ".join(text.split()) if text else None


def _types(file, line, value):
    """Returns a tuple of names, or None."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(
        isinstance(name, str) and _TYPE.fullmatch(name) for name in names
    ):
        return tuple(names)
    return file.refuse("one word, or a list of words, as 'type'", value, line)


def _chain(file, line, value):
    """Returns the name of a chain, "" where there is none, or None."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value).strip()
    return file.refuse("a name or a number as 'chain'", value, line)


def _size(file, line, row):
    """Returns (width, height), (0, 0) where neither is given, or None."""
    size = row.get("width", 0), row.get("height", 0)
    whole = all(type(side) is int and side < MOST_PIXELS for side in size)
    given = "width" in row or "height" in row
    if whole and (min(size) > 0 or not given):
        return size
    wanted = "'width' and 'height' in whole pixels, or neither"
    return file.refuse(wanted, size, line)


def _box(file, line, value, width, height):
    """Returns x_min, y_min, x_max, y_max, or None."""
    is_row = isinstance(value, list) and len(value) == 4
    if is_row and all(type(edge) in (int, float) for edge in value):
        x_min, y_min, x_max, y_max = value
        is_inside = 0 <= x_min < x_max <= (width or MOST_PIXELS)
        if is_inside and 0 <= y_min < y_max <= (height or MOST_PIXELS):
            return value
    place = f" inside of {width} x {height}" if width else ""
    wanted = "a box [x_min, y_min, x_max, y_max] in pixels from 0"
    advice = "x_min < x_max and y_min < y_max must hold."
    return file.refuse(f"{wanted}{place}", value, line, advice)


def _span(text, caption, taken):
    """Returns (first word, end) of a phrase in a caption, or None.

    Of several places the first that no other phrase has; capitals and marks
    beside letters do not count.
    """
    words = [letters(word) for word in caption.split()]
    wanted = [letters(word) for word in text.split()]
    places = [
        (first, first + len(wanted))
        for first in range(len(words) - len(wanted) + 1)
        if words[first : first + len(wanted)] == wanted
    ]
    free = [place for place in places if place not in taken]
    return (free or places or [None])[0]
