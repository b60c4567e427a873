"""The answers to a search as a picture, and as a page."""

import errno
import os
import pathlib
import sys

from tbnets import files
from tbnets.pictures import montage, page


def write_montage(options, ids, order, similarities):
    """Writes the contact sheet to --montage, or beside the embeddings."""
    folder = files.folder_beside(options.images, options.cache)
    path = pathlib.Path(options.montage or folder / "answers.png")
    asked = [*options.queries, *map(pathlib.Path, options.like)]
    sheet = montage.draw_montage(
        asked, ids, order, similarities, options.images
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
            f"note: the answers are not drawn: {path}: {reason}. Name another "
            "place by --montage.",
            file=sys.stderr,
        )
    else:
        print(f"\nThe best images side by side: {path}")


def write_page(options, notes, ids, order, similarities):
    """Writes the page to --html."""
    sections = []
    told = [note for _, note in notes] + ["photos like it"] * len(options.like)
    asked = [*options.queries, *options.like]
    for query, note, rows, values in zip(asked, told, order, similarities):
        names = [ids[row] for row in rows]
        sections.append(page.Section(query, note, names, values))
    about = f"The best of {len(ids):,} photos in {options.images}, found by "
    page.write_page(
        options.html, sections, options.images, about + options.model
    )
    print(f"\nThe answers as a page: {options.html}")
