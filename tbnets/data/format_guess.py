"""What format a caption file seems to be of, by its name or first characters.

What a run reads is said by --captions_format, or without it by the file's
name alone; what a file's content looks like is for error messages.
"""

import os
import re

JSON_FORMATS = ("karpathy", "coco", "flickr30k_json")
_TABLES = (".csv", ".tsv", ".jsonl")
_NUM_CHARACTERS = 65536


def usual_format(path):
    """Returns the format of captions that nobody told, by the file's name."""
    extension = os.path.splitext(os.fspath(path))[1].lower()
    return "table" if extension in _TABLES else "karpathy"


def guess_formats(path):
    """Returns the names of the formats a path may be of; () if unclear."""
    if os.path.isdir(path):
        names = os.listdir(path)
        with_captions = any(name.endswith("_caps.txt") for name in names)
        return ("precomputed",) if with_captions else ()
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            head = file.read(_NUM_CHARACTERS).lstrip()
    except OSError:
        return ()
    first = head.partition("\n")[0]
    if re.match(r"[^\t]+#\d+ *\t", first):
        return ("flickr",)
    extension = os.path.splitext(path)[1].lower()
    if first.startswith("{") and extension != ".jsonl":
        return JSON_FORMATS
    return ("table",) if extension in _TABLES else ()


def refuse_other_format(format, file):
    """Reports a file that seems to be of another format.

    Args:
        format: key of `captions.READERS` that it is to be read as.
        file: the `CheckedFile`, maybe of a folder.

    Returns:
        Whether it was reported, where that does not raise.
    """
    found = guess_formats(file.path)
    if not found or format in found:
        return False
    names = " or ".join(found)
    file.report(
        f"expected captions of format {format}; found what looks like {names}. "
        f"Set --captions_format={'|'.join(found)}."
    )
    return True
