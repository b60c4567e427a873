"""Writes the answers of a search as one HTML page that opens anywhere.

The page holds its thumbnails and its style, has no scripts and loads nothing:
it can be mailed, and opens from the disk. Only its links lead to the photos.
"""

import base64
import html
import io
import os
import pathlib
import re
import urllib.parse
from typing import NamedTuple

from PIL import Image

from tbnets.files import readable, write_text
from tbnets.pictures.montage import find_photo, open_photo

THUMBNAIL_SIZE = 400
"""Longer side in pixels: sharp on screens of two pixels a point."""
JPEG_QUALITY = 80

_STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f6f6f4; --card: #ffffff; --text: #1c1d1f; --quiet: #63666b;
  --line: #dddedb; --accent: #1a6e50;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181b; --card: #212429; --text: #e9eaec; --quiet: #a0a4ab;
    --line: #33373d; --accent: #6fcfa5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 82rem; padding: 2rem 1.25rem 4rem;
  background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
header { border-bottom: 1px solid var(--line); padding-bottom: 1rem; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0; }
p { color: var(--quiet); font-size: .9rem; margin: .2rem 0 0; }
h2 {
  font-size: 1.5rem; font-weight: 650; letter-spacing: -.01em;
  line-height: 1.25; margin: 2.25rem 0 0; overflow-wrap: anywhere;
}
ol {
  display: grid; gap: 1rem; list-style: none; margin: 1rem 0 0; padding: 0;
  grid-template-columns: repeat(auto-fill, minmax(13.5rem, 1fr));
}
@media (max-width: 32rem) {
  body { padding: 1.25rem .8rem 3rem; }
  h2 { font-size: 1.25rem; }
  ol { gap: .6rem; grid-template-columns: 1fr 1fr; }
}
li {
  background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; overflow: hidden;
}
a { color: inherit; display: block; text-decoration: none; }
a:hover .name, a:focus-visible .name { text-decoration: underline; }
a:focus-visible { outline: 3px solid var(--accent); outline-offset: -3px; }
img, .missing {
  aspect-ratio: 1; background: var(--ground); display: block;
  object-fit: contain; width: 100%;
}
.missing { color: var(--quiet); display: grid; place-items: center; }
.facts { display: flex; gap: .5rem; padding: .55rem .7rem 0; }
.rank { font-weight: 650; }
.similarity {
  color: var(--accent); font-variant-numeric: tabular-nums;
  margin-left: auto;
}
.name {
  color: var(--quiet); display: block; font-size: .82rem; line-height: 1.35;
  overflow-wrap: anywhere; padding: .1rem .7rem .65rem;
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{about}</p>
</header>
<main>
{sections}
</main>
</body>
</html>
"""


class Section(NamedTuple):
    """One query with its answers.

    Args:
        query: the sentence.
        note: what else is to be said of it, or "".
        image_ids: names of the best photos in their folder, best first.
        similarities: as many floats.
    """

    query: str
    note: str
    image_ids: list
    similarities: list


def write_page(path, sections, folder, about):
    """Writes the answers as one HTML file.

    A photo is linked by where it lies relative to the page if it lies below
    the page's folder, so that both can be moved together; else by its full
    path.

    Args:
        path: file to write.
        sections: list of `Section`.
        folder: folder of the photos.
        about: what was searched, and with what.

    Raises:
        OSError: it can not be written.
    """
    start = pathlib.Path(os.path.abspath(path)).parent
    text = _PAGE.format(
        title="Photos for " + _text(_listed([one.query for one in sections])),
        style=_STYLE,
        about=_text(about),
        sections="\n".join(_section(one, folder, start) for one in sections),
    )
    write_text(path, text)


def thumbnail(photo):
    """Returns a photo as a data URI: a JPEG of at most `THUMBNAIL_SIZE`.

    Args:
        photo: `PIL.Image.Image`, left as it is.
    """
    small = photo.copy()
    small.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    code = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/jpeg;base64,{code}"


def link(photo, start):
    """Returns the address of a photo for a page.

    Args:
        photo: path of the photo.
        start: folder of the page, as an absolute path.
    """
    photo = pathlib.Path(os.path.abspath(photo))
    if photo.is_relative_to(start):
        return urllib.parse.quote(os.fsencode(photo.relative_to(start)))
    return photo.as_uri()


def _section(section, folder, start):
    """Returns the HTML of one query."""
    answers = "\n".join(
        _answer(rank, image_id, similarity, folder, start)
        for rank, (image_id, similarity) in enumerate(
            zip(section.image_ids, section.similarities), start=1
        )
    )
    note = f"<p>{_text(section.note)}</p>\n" if section.note else ""
    head = f"<section>\n<h2>{_text(section.query)}</h2>\n{note}"
    return f"{head}<ol>\n{answers}\n</ol>\n</section>"


def _answer(rank, image_id, similarity, folder, start):
    """Returns the HTML of one photo."""
    photo = open_photo(folder, image_id)
    facts = (
        f'<span class="facts"><span class="rank">{rank}</span> '
        f'<span class="similarity" title="similarity">{similarity:.3f}</span>'
        f'</span> <span class="name">{_name(image_id)}</span>'
    )
    if photo is None:
        return f'<li><span class="missing">no photo</span>{facts}</li>'
    address = _text(link(find_photo(folder, image_id), start))
    picture = f'<img src="{thumbnail(photo)}" alt="{_text(image_id)}">'
    return f'<li><a href="{address}">{picture}{facts}</a></li>'


def _listed(queries):
    """Returns the first of the queries for a title."""
    more = f" and {len(queries) - 1} more" if len(queries) > 1 else ""
    return f"\u201c{queries[0]}\u201d{more}"


def _name(image_id):
    """Returns a file's name as HTML that may be broken where it reads well."""
    parts = re.split(r"(?<=[/_-])|(?=\.[^.]*$)", image_id)
    return "<wbr>".join(_text(part) for part in parts)


def _text(text):
    """Returns any text as HTML shows it, also between quotes."""
    return html.escape(readable(text), quote=True)
