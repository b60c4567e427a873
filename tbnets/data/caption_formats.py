"""The registry of caption formats, and the search for a file's format.

`find_format` asks each format in `FORMATS` why a file does not have it. To add
a format, write a reader and this function, and add both to `FORMATS`.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable

from tbnets.data import (
    archive_captions,
    caption_json,
    caption_readers,
    caption_tables,
)
from tbnets.data.photo_archives import list_archives
from tbnets.files import require_file, shown

AUTO = "auto"
_JSON_START = re.compile(r"\{\s*(?:\"|\}|$)|\[\s*(?:[\[{\"\]\d-]|$)")
_PACKED = {
    b"\x1f\x8b": "a gzip file. Decompress it first with gunzip.",
    b"PK\3\4": "a zip file. Unpack it, or save a spreadsheet as CSV.",
}
"""Maps the first bytes of a compressed file to advice."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of captions.

    Args:
        why_not: function that takes a `CaptionFile` and returns why the file
            does not have this format, or "" if it does.
        read: function that takes a `CaptionFile` and a split, and returns a
            list of `ImageRecord`s.
        splits: function that returns the splits of a path; None if `read`
            returns the images of all splits.
    """

    why_not: Callable
    read: Callable
    splits: Callable | None = None


def _json_format(structure):
    why_not = functools.partial(caption_json.why_not_json, structure)
    return Format(why_not, functools.partial(caption_json.read_json, structure))


FORMATS = {
    "precomputed": Format(
        caption_readers.why_not_precomputed,
        caption_readers.read_precomputed,
        caption_readers.precomputed_splits,
    ),
    "flickr": Format(
        caption_readers.why_not_flickr,
        caption_readers.read_flickr,
        caption_readers.flickr_splits,
    ),
    "phrases": Format(caption_json.why_not_phrases, caption_json.read_phrases),
    "karpathy": _json_format(caption_json.of_images),
    "coco": Format(caption_json.why_not_coco, caption_json.read_coco),
    "records": _json_format(None),
    "mapping": _json_format(caption_json.of_mapping),
    "webdataset": Format(
        archive_captions.why_not_shards, archive_captions.read_shards
    ),
    "parquet": Format(
        archive_captions.why_not_parquet, archive_captions.read_parquet
    ),
    "table": Format(caption_tables.why_not_table, caption_tables.read_table),
}
"""Maps the name of each format to the `Format`. The first that fits is used."""


def find_format(format, file):
    """Returns the name of a file's format, or "" after reporting a problem.

    `format` is a key of `FORMATS`, which must fit the file, or "auto".
    """
    is_set = os.path.isdir(file.path) or list_archives(file.path)[1]
    if format == AUTO and not is_set:
        require_file(file.path)
    elif format != AUTO and not FORMATS[format].why_not(file):
        return format
    reasons = {}
    for name, form in FORMATS.items():
        reasons[name] = form.why_not(file)
        if reasons[name]:
            continue
        if format == AUTO:
            return name
        file.report(
            f"expected captions of format {format}; found the format {name}. "
            f"Set `format` to {name} or {AUTO}."
        )
        return ""
    if format != AUTO:
        return format  # The reader reports the problem.
    _report_unknown(file, reasons)
    return ""


def _report_unknown(file, reasons):
    for magic, advice in _PACKED.items():
        if file.head.startswith(magic):
            file.report(f"expected captions; found {advice}")
            return
    is_json = _JSON_START.match(file.start) and not caption_json.is_lines(file)
    if is_json and file.json() is None:
        return
    tried = ""
    for why in dict.fromkeys(reasons.values()):
        names = ", ".join(name for name in reasons if reasons[name] == why)
        tried += f"\n  {names}: {why}"
    first = shown(file.start.partition("\n")[0])
    file.report(
        f"expected captions; found {first}, which fits no format. If the file "
        "has columns of images and captions, name them with image_column=NAME, "
        "caption_column=NAME. docs/bring_your_data.md shows the files that can "
        f"be read. Formats that were tried:{tried}"
    )
