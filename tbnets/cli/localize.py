r"""Find the boxes that phrases name in photos.

  tbnets localize photo.jpg "a brown dog" "the ball"

For each phrase, this command prints the best of the proposed boxes and its
similarity: the cosine (1 is identical) or, for a similarity network, the log
odds of a match (0 means even odds). If the network was trained with
--pair_loss=softmax, similarities are comparable only between boxes of one
phrase. The default zoo model, entities_localization, is for photos;
--model=scenes_localization is for rendered scenes.

  tbnets localize --output=drawn photos/*.jpg "a man" "a dog"

The first word is a photo, and so is every word with the suffix of a photo, such
as .jpg. All other words are phrases. This command draws the boxes of each photo
as drawn/PHOTO.localized.png.

  tbnets localize --model=runs/own --top=3 \
      --json=found.json photo.jpg "a red ball"

This command uses the newest SavedModel of a run of tbnets train
--task=localization. The model must take photos: train or export the run with
--cnn_weights=imagenet.

A box is x_min, y_min, x_max, y_max in pixels of the upright photo, with the
origin in its upper left corner. Every phrase gets a box, even if the photo does
not show the object. Unknown words are listed and ignored.

Requires an extra: pip install "tbnets[regions]". See docs/localization.md.
"""

import dataclasses
import os
import pathlib
import sys

import PIL.Image

from tbnets import files
from tbnets.checks import first_twice
from tbnets.cli.data_flags import (
    ChoiceFlags,
    check_choice_flags,
    choice_arguments,
)
from tbnets.cli.model_flags import (
    MODEL,
    ModelFlags,
    check_text,
    quiet_if_stdout,
    write_answers_json,
)
from tbnets.data.archives import PHOTO_SUFFIXES
from tbnets.data.images import read_photo
from tbnets.data.pictures import BrokenImageError, read_content
from tbnets.errors import InputError
from tbnets.serving import search
from tbnets.serving.served import own_choice
from tbnets.tasks.settings.flag import Count, check_place, flag
from tbnets.visualization.boxes import PhraseBox, draw_boxes

LEAST_SIDE, MOST_SIDE = 640, 1280
REQUIREMENTS = {
    "embed_phrases": (
        "be a network of phrase localization",
        "Query it with tbnets query.",
    ),
    "localize": (
        "take photos",
        "Export its run with --cnn_weights=imagenet; its regions need "
        "--region_features=roi_average.",
    ),
}
"""Required endpoints, for `ModelFlags.open`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ModelFlags, ChoiceFlags):
    """Flags for the photos, the phrases, the network and the outputs."""

    words: list[str] = flag(
        [],
        "Photos, and phrases to find in them. The first word is a photo, as "
        f"is each word that ends in {', '.join(PHOTO_SUFFIXES)}.",
        kind="words",
    )
    model: str = flag("entities_localization", MODEL)
    top: Count = flag(
        1,
        "Boxes per phrase. A box that overlaps a better box by more than "
        "half is left out.",
    )
    output: str = flag(
        "",
        "Folder for the photos with drawn boxes, PHOTO.localized.png.",
    )
    json: str = flag(
        "",
        "JSON file for the results; - writes only JSON, to standard output. "
        "For several photos, the JSON is a list with one entry per photo.",
    )


def read_words(options):
    """Separates phrases from photo paths; returns the paths and the phrases."""
    photos, phrases = options.words[:1], []
    for word in options.words[1:]:
        is_photo = word.lower().endswith(PHOTO_SUFFIXES)
        (photos if is_photo else phrases).append(word)
    check_text("tbnets localize", phrases)
    if not phrases or not all(map(str.strip, phrases)):
        received = f"{len(photos)} photos and the phrases {phrases}"
        raise InputError("tbnets localize", "get photos and phrases", received)
    return photos, phrases


def places_of_pictures(options, photos):
    """Returns the output path for each photo, or "" if --output is not set."""
    if not options.output:
        return [""] * len(photos)
    stems = [pathlib.Path(photo).stem for photo in photos]
    if (twice := first_twice(stems)) is not None:
        expected = "have a picture per photo, named after it"
        raise InputError("--output", expected, f"two photos called {twice}")
    folder = options.output
    return [os.path.join(folder, f"{stem}.localized.png") for stem in stems]


def warn_of_unknown(phrases, notes):
    """Prints a warning for each phrase that contains no known word."""
    for phrase, (_, note) in zip(phrases, notes):
        if note == search.NO_WORD:
            print(
                f'warning: the network knows no word of "{phrase}", so its '
                "box is meaningless.",
                file=sys.stderr,
            )


def print_boxes(phrases, notes, phrase_regions):
    """Prints a table of boxes for each phrase."""
    for title, regions in zip(
        search.query_titles(phrases, notes), phrase_regions
    ):
        print(title)
        if not regions:
            print("  no box is proposed in this photo")
            continue
        print(" rank  similarity   x_min   y_min   x_max   y_max")
        for rank, (box, similarity) in enumerate(regions, start=1):
            edges = "".join(f"{edge:8.1f}" for edge in box)
            print(f"{rank:5d}  {similarity:10.3f}{edges}")


def write_picture(path, pixels, phrases, phrase_regions):
    """Draws the found boxes on a photo and writes the picture."""
    side = min(max(max(pixels.shape), LEAST_SIDE), MOST_SIDE)
    boxes = [
        PhraseBox(box, phrase if rank == 1 else f"{rank} {phrase}", colour)
        for colour, (phrase, regions) in enumerate(zip(phrases, phrase_regions))
        for rank, (box, _) in enumerate(regions, start=1)
    ]
    picture = PIL.Image.fromarray(draw_boxes(pixels, boxes, side))
    files.write_png(path, picture)
    print(f"\nPhoto with boxes: {path}")


def localize_photo(options, model, phrases, notes, photo, picture):
    """Prints and draws the boxes in a photo. Returns a JSON record."""
    content = read_content(photo)
    choice = choice_arguments(options) or own_choice(model)
    phrase_regions = model.find(phrases, content, options.top, **choice)
    print_boxes(phrases, notes, phrase_regions)
    if picture:
        write_picture(picture, read_photo(content), phrases, phrase_regions)
    record = {"photo": files.readable(photo), "model": options.model, **choice}
    record["phrases"] = search.regions_record(phrases, notes, phrase_regions)
    return record


def localize_all(options, model, phrases, photos, pictures):
    """Localizes the phrases in each photo. Returns a JSON record."""
    records, notes = [], search.notes_on(model, phrases)
    warn_of_unknown(phrases, notes)
    for photo, picture in zip(photos, pictures):
        if len(photos) > 1:
            print(f"{files.readable(photo)}:")
        about = phrases, notes, photo, picture
        try:
            records.append(localize_photo(options, model, *about))
        except BrokenImageError as error:
            if photo is photos[-1] and not records:
                raise BrokenImageError(photo, error.reason) from error
            print(f"left out: {photo}, which {error.reason}", file=sys.stderr)
    return records if len(photos) > 1 else records[0]


def main(options):
    """Localizes the phrases in the photos."""
    check_choice_flags(options)
    photos, phrases = read_words(options)
    pictures = places_of_pictures(options, photos)
    check_place("json", options.json)
    for photo in photos:
        if not os.path.isfile(photo):
            read_photo(photo)  # Its errors name the file.
    model = options.open(REQUIREMENTS)
    with quiet_if_stdout(options.json):
        record = localize_all(options, model, phrases, photos, pictures)
    write_answers_json(options.json, record)
