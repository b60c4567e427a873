"""The registry of caption formats, and the search for a file's format.

`find_format` asks each format in `FORMATS` why a file does not have it. To add
a format, write a reader and this function, and add both to `FORMATS`.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable

from tbnets.data import caption_readers
from tbnets.files import require_file, shown

AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of captions.

    Args:
        why_not: function that takes a `CaptionFile` and returns why the file
            does not have this format, or "" if it does.
        read: function that takes a `CaptionFile` and a split, and returns a
            list of `ImageRecord`s.
        splits: function that returns the splits of a path, if `read` reads only
            the requested split; None if `read` returns the images of all
            splits.
    """

    why_not: Callable
    read: Callable
    splits: Callable | None = None


def _folder(file):
    if not os.path.isdir(file.path):
        return "it is not a folder"
    names = os.listdir(file.path)
    has_captions = any(name.endswith("_caps.txt") for name in names)
    return "" if has_captions else "the folder has no <split>_caps.txt"


def _token(file):
    if re.match(r"[^\t\n]+#\d+ *\t", file.start):
        return ""
    return "its first line is not <image>#<number><TAB><caption>"


def _json(pattern, why, file):
    is_object = file.start.startswith("{")
    if not is_object or file.path.lower().endswith(".jsonl"):
        return "it is not a JSON object"
    return "" if re.search(pattern, file.start) else why


def _table(file):
    path, start = file.path.lower(), file.start
    if path.endswith(".jsonl") and start.startswith("{"):
        return ""
    if path.endswith(".json") and re.match(r"\[\s*\{", start):
        return ""
    is_table = caption_readers.is_table(start)
    return "" if is_table else "its first row names no image and caption column"


FORMATS = {
    "precomputed": Format(
        _folder,
        caption_readers.read_precomputed,
        caption_readers.precomputed_splits,
    ),
    "flickr": Format(
        _token, caption_readers.read_flickr, caption_readers.flickr_splits
    ),
    "karpathy": Format(
        functools.partial(
            _json, r'"(sentences|sentids)"\s*:', "its images have no sentences"
        ),
        caption_readers.read_karpathy,
    ),
    "coco": Format(
        functools.partial(
            _json,
            r'"(annotations|coco_url|file_name)"\s*:',
            "it has no annotations",
        ),
        caption_readers.read_coco,
    ),
    "flickr30k_json": Format(
        functools.partial(
            _json,
            r'\A\{\s*"[^"]*"\s*:\s*\[?\s*"',
            "its first value is not a caption or a list of captions",
        ),
        caption_readers.read_flickr30k_json,
    ),
    "table": Format(_table, caption_readers.read_table),
}
"""Maps the name of each format to the `Format`. The first that fits is used."""


def why_not(file):
    """Maps each format to why a `CaptionFile` does not have it, or to ""."""
    return {name: form.why_not(file) for name, form in FORMATS.items()}


def find_format(format, file):
    """Returns the name of a file's format, or "" after reporting a problem.

    Args:
        format: a key of `FORMATS`, which must fit the file, or "auto".
        file: the `CaptionFile`.
    """
    if format == AUTO and not os.path.isdir(file.path):
        require_file(file.path)
    reasons = why_not(file)
    if format != AUTO and not reasons[format]:
        return format
    fitting = [name for name, reason in reasons.items() if not reason]
    if format == AUTO and fitting:
        return fitting[0]
    if fitting:
        names = " or ".join(fitting)
        file.report(
            f"expected captions of format {format}; found the format {names}. "
            f"Set `format` to {names} or {AUTO}."
        )
        return ""
    if format != AUTO:
        return format  # The reader reports the problem.
    if file.start[:1] in ("{", "[") and file.json() is None:
        return ""
    tried = "".join(f"\n  {name}: {why}" for name, why in reasons.items())
    first = shown(file.start.partition("\n")[0])
    file.report(
        f"expected captions in a known format; found {first}. docs/"
        f"data_formats.md shows the formats. Formats that were tried:{tried}"
    )
    return ""
