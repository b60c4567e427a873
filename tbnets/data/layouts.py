"""The names of columns in files of captions."""

import re

COLUMN_NAMES = {
    "image": (
        "image",
        "image_name",
        "file_name",
        "filename",
        "filepath",
        "file_path",
        "image_path",
        "path",
        "img",
        "img_path",
        "img_name",
        "image_file",
        "photo",
        "image_id",
        "url",
        "image_url",
    ),
    "caption": (
        "caption",
        "text",
        "title",
        "sentence",
        "description",
        "comment",
        "alt_text",
        "raw",
        "caption_str",
        "reference_str",
        "conversation",
        "message",
    ),
    "split": ("split", "set", "subset"),
}
"""Maps each kind of column to the names that it may have, preferred first.

Names are compared in the form that `bare` returns.
"""


def bare(name):
    """Returns a column's name in lower case, with underscores, without an s."""
    name = name.strip().lower()[:100]  # Longer names are not usual.
    return re.sub(r"[\s-]+", "_", name).removesuffix("s")
