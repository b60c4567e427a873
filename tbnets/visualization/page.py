"""Writes search results as one HTML page.

The page contains its thumbnails and its style, but no scripts. Only the links
to photos need other files.
"""

import base64
import html
import io
import os
import pathlib
import re
import string
import urllib.parse
from typing import NamedTuple

from PIL import Image

from tbnets.data.photos import find_photo
from tbnets.files import readable, write_text
from tbnets.visualization.montage import MOST_SIDE, open_photo

THUMBNAIL_SIZE = MOST_SIDE
"""Longer side of a thumbnail in pixels; sharp on high-density screens."""
JPEG_QUALITY = 80


_PAGE = string.Template(
    pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
)


class Section(NamedTuple):
    """A query with its results.

    Args:
        note: a remark on the query, or "".
        image_ids: paths of the best photos relative to their folder, best
            first.
        similarities: each photo's similarity to the query.
    """

    query: str
    note: str
    image_ids: list
    similarities: list


def write_page(path, sections, folder, about):
    """Writes search results, a list of `Section`, as one HTML file.

    `folder` is the folder of the photos, and `about` describes the searched
    data and the model. Links to photos inside the page's folder are relative,
    so that the folder can be moved.
    """
    start = pathlib.Path(os.path.abspath(path)).parent
    num_others = len(sections) - 1
    and_others = f" and {num_others} more" if num_others else ""
    text = _PAGE.substitute(
        title=f"Photos for \u201c{_text(sections[0].query)}\u201d{and_others}",
        about=_text(about),
        sections="\n".join(_section(x, folder, start) for x in sections),
    )
    write_text(path, text)


def jpeg(photo, side):
    """Encodes a photo as a JPEG of at most `side` pixels per side."""
    scaled = photo.copy()
    scaled.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    scaled.save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def link(photo, start):
    """Returns the URL of a photo for a page in the folder `start`."""
    photo = pathlib.Path(os.path.abspath(photo))
    if photo.is_relative_to(start):
        return urllib.parse.quote(os.fsencode(photo.relative_to(start)))
    return photo.as_uri()


def _section(section, folder, start):
    pairs = zip(section.image_ids, section.similarities)
    answers = "\n".join(
        _answer(rank, *pair, folder, start)
        for rank, pair in enumerate(pairs, 1)
    )
    note = f"<p>{_text(section.note)}</p>\n" if section.note else ""
    head = f"<section>\n<h2>{_text(section.query)}</h2>\n{note}"
    return f"{head}<ol>\n{answers}\n</ol>\n</section>"


def _answer(rank, image_id, similarity, folder, start):
    photo = open_photo(folder, image_id)
    facts = (
        f'<span class="facts"><span class="rank">{rank}</span> '
        f'<span class="similarity" title="similarity">{similarity:.3f}</span>'
        f'</span> <span class="name">{_name(image_id)}</span>'
    )
    if photo is None:
        return f'<li><span class="missing">no photo</span>{facts}</li>'
    address = _text(link(find_photo(folder, image_id), start))
    code = base64.b64encode(jpeg(photo, THUMBNAIL_SIZE)).decode("ascii")
    source = f"data:image/jpeg;base64,{code}"
    picture = f'<img src="{source}" alt="{_text(image_id)}">'
    return f'<li><a href="{address}">{picture}{facts}</a></li>'


def _name(image_id):
    """Returns a file name as HTML that allows line breaks at separators."""
    parts = re.split(r"(?<=[/_-])|(?=\.[^.]*$)", image_id)
    return "<wbr>".join(_text(part) for part in parts)


def _text(text):
    return html.escape(readable(text), quote=True)
