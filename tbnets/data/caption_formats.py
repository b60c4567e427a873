"""Finds the format of a caption file and reads its images.

`READERS` has a reader per format. It takes a `CaptionFile` and returns one
`ImageRecord` per image and split, in the order of the file, or raises
`OtherFormat`.
"""

import functools
import os
import re

from tbnets.data import (
    archive_captions,
    caption_json,
    caption_readers,
    caption_tables,
)
from tbnets.data.caption_files import CaptionFile, OtherFormat
from tbnets.data.photo_archives import list_archives
from tbnets.files import require_file, shown

AUTO = "auto"
_JSON_START = re.compile(r"\{\s*(?:\"|\}|$)|\[\s*(?:[\[{\"\]\d-]|$)")
_PACKED = {
    b"\x1f\x8b": "a gzip file. Decompress it first with gunzip.",
    b"PK\3\4": "a zip file. Unpack it, or save a spreadsheet as CSV.",
}
"""Maps the first bytes of a compressed file to advice."""


READERS = {
    "precomputed": caption_readers.read_precomputed,
    "flickr": caption_readers.read_flickr,
    "phrases": caption_json.read_phrases,
    "karpathy": functools.partial(
        caption_json.read_json, caption_json.of_images
    ),
    "coco": caption_json.read_coco,
    "records": functools.partial(caption_json.read_json, None),
    "mapping": functools.partial(
        caption_json.read_json, caption_json.of_mapping
    ),
    "webdataset": archive_captions.read_shards,
    "parquet": archive_captions.read_parquet,
    "table": caption_tables.read_table,
}
"""Maps the name of each format to its reader. The first that fits is used."""


def read_file(format, file):
    """Returns the images of a `CaptionFile`, and the format and the columns.

    `format` is a key of `READERS`, or "auto" to try all of them. Reports a
    problem and returns ([], "") if no format fits.
    """
    is_folder = format == AUTO and os.path.isdir(file.path)
    if not (is_folder or list_archives(file.path)[1]):
        require_file(file.path)
    before, reasons = len(file.problems or ()), {}
    for name in READERS if format == AUTO else [format]:
        try:
            records = READERS[name](file)
        except OtherFormat as error:
            reasons[name] = str(error)
            continue
        if not records and len(file.problems or ()) == before:
            file.report("expected captions; found none.")
        return records, f"{name} ({file.used})" if file.used else name
    _report_unknown(format, file, reasons)
    return [], ""


def _report_unknown(format, file, reasons):
    for magic, advice in _PACKED.items():
        if file.head.startswith(magic):
            file.report(f"expected captions; found {advice}")
            return
    is_json = _JSON_START.match(file.start) and not caption_json.is_lines(file)
    if is_json and file.json() is None:
        return
    first = shown(file.start.partition("\n")[0])
    if format != AUTO:
        other = read_file(AUTO, CaptionFile(file.path, [], file.columns))[1]
        file.report(
            f"expected captions of format {format}; found {first}. It has "
            f"another format: {reasons[format]}. Set `format` to "
            f"{other.partition(' ')[0] or AUTO}."
        )
        return
    tried = ""
    for why in dict.fromkeys(reasons.values()):
        names = ", ".join(name for name in reasons if reasons[name] == why)
        tried += f"\n  {names}: {why}"
    file.report(
        f"expected captions; found {first}, which fits no format. If the file "
        "has columns of images and captions, name them with image_column=NAME, "
        "caption_column=NAME. docs/bring_your_data.md shows the files that can "
        f"be read. Formats that were tried:{tried}"
    )
