r"""Finds the boxes that phrases name in one photo.

  python tools/localize.py photo.jpg "a brown dog" "the ball"

proposes boxes as they were proposed for the training, compares each phrase with
each of them, and prints the best box of each phrase with its similarity (the
cosine, 1 is identical; of a similarity network the log odds of a match, 0 is
even, or where it learned by --pair_loss=softmax, a number that only compares
boxes of one phrase). The photo with these boxes is drawn as photo.localized.png
in the current folder. The model is entities_localization of the zoo, which
learned from photos; --model=scenes_localization knows the rendered scenes.

  python tools/localize.py --model=runs/own --top=3 \
      --json=found.json photo.jpg "a red ball"

asks the newest SavedModel of a run of tools/train.py --task=localization. It
must begin with the photo: train with --cnn_weights=imagenet, or export the run
once more by tools/export.py --cnn_weights=imagenet.

A box is x_min, y_min, x_max, y_max in pixels of the upright photo, from its
upper left corner. Some box is always the best, of a phrase that names nothing
in the photo too, and its similarity does not tell. Words the network was never
shown are named: they do not count.

Needs the extra: pip install "tbnets[regions]". docs/localization.md tells
more.
"""

import dataclasses
import os
import pathlib
import sys

import PIL.Image

from tbnets import files
from tbnets.commands.asking import MODEL, Asked, check_text
from tbnets.commands.checks import check_place
from tbnets.errors import InputError
from tbnets.flags.flag import Count, flag
from tbnets.images import read_photo
from tbnets.pictures.boxes import PhraseBox, draw_boxes
from tbnets.serving import search

LEAST_SIDE, MOST_SIDE = 640, 1280
NEEDED = {
    "embed_phrases": (
        "be a network of phrase localization",
        "Ask it by tools/query.py, or train one with --task=localization.",
    ),
    "localize": (
        "begin with the photo",
        "Export its run by tools/export.py --cnn_weights=imagenet; its regions "
        "must be made with --region_features=roi_average.",
    ),
}
"""What `Asked.open` asks of a model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Asked):
    """What is sought, by which network, and where it is written."""

    words: list[str] = flag(
        [], "A photo, and phrases that name things in it.", kind="words"
    )
    model: str = flag("entities_localization", MODEL)
    top: Count = flag(
        1,
        "Boxes per phrase; those that overlap a better one by more than half "
        "are left out.",
    )
    output: str | None = flag(
        None,
        "PNG to write; by default PHOTO.localized.png in the current folder, "
        "empty for none.",
    )
    json: str = flag("", "JSON file to write what is printed.")


def read_words(options):
    """Returns the photo's path, the phrases and the picture's path or None."""
    if len(options.words) < 2:
        raise InputError(
            "`tools/localize.py` must be given a photo and a phrase or more. "
            f"Received: {len(options.words)} words. Write for example "
            'tools/localize.py photo.jpg "a brown dog".'
        )
    photo, *phrases = options.words
    check_text("tools/localize.py", phrases)
    if not all(phrase.strip() for phrase in phrases):
        raise InputError(
            "`tools/localize.py` must be given phrases of words. Received: "
            f"{phrases}. Leave the empty one out."
        )
    output = options.output
    if output is None:
        output = pathlib.Path(photo).stem + ".localized.png"
    for name, path in (("output", output), ("json", options.json)):
        check_place(name, path)
        both = os.path.exists(path) and os.path.exists(photo)
        if both and os.path.samefile(path, photo):
            raise InputError(
                f"`--{name}` must not be the photo. Received: --{name}={path}. "
                "Choose another name: the photo is left as it is."
            )
    return photo, phrases, output


def warn_of_unknown(model, phrases):
    """Tells of phrases without a word that the network knows."""
    for phrase in phrases:
        words = search.split_into_words([phrase])[0]
        if len(search.unknown_words(model, phrase)) == len(words):
            print(
                f'warning: the network knows no word of "{phrase}": its box '
                "says nothing.",
                file=sys.stderr,
            )


def print_found(model, phrases, found):
    """Prints a table for each phrase."""
    for phrase, regions in zip(phrases, found):
        note = search.unknown_note(model, phrase)
        print(f'"{phrase}"' + (f" ({note})" if note else ""))
        if not regions:
            print("  no box is proposed in this photo")
            continue
        print(" rank  similarity   x_min   y_min   x_max   y_max")
        for rank, (box, similarity) in enumerate(regions, start=1):
            edges = "".join(f"{edge:8.1f}" for edge in box)
            print(f"{rank:5d}  {similarity:10.3f}{edges}")


def write_found(options, model, phrases, found, photo):
    """Writes the same to --json."""
    answers = []
    for phrase, regions in zip(phrases, found):
        told = [
            {"box": [float(edge) for edge in box], "similarity": similarity}
            for box, similarity in regions
        ]
        unknown = search.unknown_words(model, phrase)
        answers.append(
            {"phrase": phrase, "unknown_words": unknown, "regions": told}
        )
    record = {"photo": files.readable(photo), "model": options.model}
    files.write_json(options.json, {**record, "phrases": answers})
    print(f"\nThe same as JSON: {options.json}")


def write_picture(path, pixels, phrases, found):
    """Draws the photo with the boxes that were found."""
    side = min(max(max(pixels.shape), LEAST_SIDE), MOST_SIDE)
    boxes = [
        PhraseBox(box, phrase if rank == 1 else f"{rank} {phrase}", colour)
        for colour, (phrase, regions) in enumerate(zip(phrases, found))
        for rank, (box, _) in enumerate(regions, start=1)
    ]
    picture = PIL.Image.fromarray(draw_boxes(pixels, boxes, side))
    files.write_atomically(path, lambda file: picture.save(file, "PNG"))
    print(f"\nThe boxes drawn: {path}")


def main(options):
    """Localizes the phrases."""
    photo, phrases, output = read_words(options)
    pixels = read_photo(photo)  # Its errors name the file.
    model = options.open(NEEDED)
    warn_of_unknown(model, phrases)
    boxes = model.propose(pixels)
    found = model.find(phrases, photo, options.top, boxes)
    print_found(model, phrases, found)
    if options.json:
        write_found(options, model, phrases, found, photo)
    if output:
        write_picture(output, pixels, phrases, found)
