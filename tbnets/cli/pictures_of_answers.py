"""The answers to a search as a picture, and as a page."""

import errno
import os
import pathlib
import sys

from tbnets import files
from tbnets.cli.asking import STDOUT
from tbnets.data.photos import is_listed
from tbnets.errors import InputError
from tbnets.visualization import montage, page

ANSWERS = "answers.png"
"""How the contact sheet is called where nobody says."""
OUTPUTS = ("montage", "html", "json")
"""Flags that name a file to write."""
MOST_ROWS, MOST_ANSWERS = 40, 50
"""Of a contact sheet: more are too many to look at, and for the memory."""


def check_outputs(options):
    """Refuses files to write that are photos, or each other."""
    places = {name: getattr(options, name) for name in OUTPUTS}
    if options.cache and options.images and options.montage is None:
        places["cache"] = os.path.join(options.cache, ANSWERS)
    taken = dict.fromkeys(map(os.path.realpath, options.like), "a photo")
    for name, path in places.items():
        real = pathlib.Path(os.path.realpath(path or STDOUT))
        if path in (None, "", STDOUT) or (real.exists() and not real.is_file()):
            continue
        if options.images and is_listed(real, options.images):
            taken[str(real)] = "among the photos of --images"
        if found := taken.get(str(real)):
            raise InputError(
                f"`--{name}` must be a file of its own. Received: --{name}="
                f"{getattr(options, name)}, which is {found}. Choose another."
            )
        taken[str(real)] = f"that of --{name}"


def write_montage(options, ids, order, similarities):
    """Writes the contact sheet to --montage, or beside the embeddings."""
    folder = files.folder_beside(options.images, options.cache)
    path = pathlib.Path(options.montage or folder / ANSWERS)
    asked = [*options.queries, *map(pathlib.Path, options.like)]
    best = order[:MOST_ROWS, :MOST_ANSWERS]
    sheet = montage.draw_montage(
        asked[:MOST_ROWS], ids, best, similarities, options.images
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
        drawn = f" (the first {MOST_ROWS} questions)"
        drawn *= len(asked) > MOST_ROWS
        print(f"\nThe best images side by side: {path}{drawn}")


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
