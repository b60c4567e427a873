"""Reads the captions of Flickr30K Entities: `Sentences/<id>.txt`.

One caption a line, whose phrases stand in tags with a coreference chain and
one type or several:

    [/EN#283585/people/clothing A man in uniform] likes [/EN#0/notvisual it] .

Chain 0 is what was not annotated because it shows nothing.
"""

import collections
import re
from typing import NamedTuple

from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import InputError

NO_CHAIN = "0"
_BRACKET = re.compile(r"[\[\]]|\Z")
_TAG = re.compile(r"\[/EN#([0-9]+)((?:/[^\s/\[\]]+)+)[ \t]([^\[\]]*)\]")


class MarkedPhrase(NamedTuple):
    """A phrase of a caption.

    Args:
        text: its words with single blanks between.
        first: number of its first word in the caption, from 0.
        end: number of the word after its last.
        chain: digits as they stand there, so that 007 is another chain than
            7; "0" for what shows nothing.
        types: one or more names such as "people".
    """

    text: str
    first: int
    end: int
    chain: str
    types: tuple[str, ...]


class MarkedCaption(NamedTuple):
    """A caption without its tags, and what they said.

    Args:
        number: of the caption in its file, from 0.
        text: the words with single blanks between.
        phrases: tuple of `MarkedPhrase`, from left to right.
    """

    number: int
    text: str
    phrases: tuple[MarkedPhrase, ...]


class ImagePhrases(NamedTuple):
    """An image, its captions with phrases, and the boxes of its chains.

    Args:
        image_id: str.
        file_name: of the photo, relative to an images folder.
        size: (width, height) that the boxes count in; (0, 0): the photo's.
        captions: list of `MarkedCaption`.
        boxes: chain -> list of (x_min, y_min, x_max, y_max).
        left_out: reason -> number of phrases without a box.
    """

    image_id: str
    file_name: str
    size: tuple
    captions: list
    boxes: dict
    left_out: collections.Counter


def parse_caption(line, number=0) -> MarkedCaption:
    """Takes a line of a Sentences file apart.

    Args:
        line: str without a line end.
        number: of the caption in its file, from 0.

    Raises:
        ValueError: a tag is not closed or not opened, lies in another one,
            or has no chain, no type or no words.

    Example:
        >>> parse_caption("[/EN#7/people A man] runs").phrases[0].text
        'A man'
    """
    words, phrases, place = [], [], 0
    while True:
        start = _BRACKET.search(line, place).start()
        words += line[place:start].split()
        if start == len(line):
            return MarkedCaption(number, " ".join(words), tuple(phrases))
        tag = _TAG.match(line, start)
        own = tag[3].split() if tag else []
        if not own:
            found = line[start : _BRACKET.search(line, start + 1).end()]
            if line[start] == "]":  # What is before it was no tag.
                found = line[: start + 1][-60:]
            raise InputError(
                f"expected [/EN#<chain>/<type> <words>]; found {shown(found)}."
                " Correct the tag, or copy the file again."
            )
        span = len(words), len(words) + len(own)
        types = tuple(tag[2][1:].split("/"))
        chain = tag[1] if tag[1].strip("0") else NO_CHAIN
        phrases.append(MarkedPhrase(" ".join(own), *span, chain, types))
        words += own
        place = tag.end()


def read_sentences(path, problems=None) -> list[MarkedCaption]:
    """Reads the captions of one photo.

    Args:
        path: text file, UTF-8.
        problems: list that collects the problems of single lines, which are
            then left out while the others keep their numbers; None raises at
            the first.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is wrong; names the file and the line.

    Source: Plummer et al. 2015, "Flickr30k Entities", release 1.0.
    """
    file = CheckedFile(path, problems)
    lines, _ = file.lines()
    captions = []
    for number, line in enumerate(lines):
        try:
            captions.append(parse_caption(line, number))
        except InputError as error:
            file.report(str(error), number + 1)
    if not lines:
        file.report("expected captions; found none. Copy it again.")
    return captions
