"""How an error of the library, which names arguments, comes to name flags."""

import os
import re

_FLAGS = {
    "background": ("cca_background",),
    "format": ("captions_format",),
    "gradient_clip_norm": ("clip_norm",),
    "image_branch": ("image_units",),
    "name": ("cnn", "image_encoder"),
    "output_dim": ("cca_dim",),
    "positives": ("positive_pairs",),
    "preset": ("hub", "cnn", "features", "image_encoder", "text_encoder"),
    "regularization": ("cca_regularization",),
    "steps": ("image_transform",),
    "text_branch": ("text_units",),
    "vectors": ("word_vectors",),
    "weights": ("cnn_weights", "image_weights"),
}
"""Argument of the library -> the flags that say it by another name."""
_TOLD = re.compile(r"((?:[:,;]|\b(?:and|but|for|in|of|or|than|with)) )(\w+)=")
"""Where an error tells what an argument is; names of files may look alike."""


def as_flags(text, names, values=None):
    """Returns an error's text with a verb's flags in place of arguments.

    The library speaks of arguments, as its callers know them. One whose value
    it tells, `name=value`, is the flag of this name; where several flags may
    be meant, it is those whose value stands in the text. A `path` is the flag
    whose value it is.

    Args:
        text: of a `UserError`.
        names: of the flags that there are.
        values: name -> value of those that were read.
    """
    renamed, values = {}, values or {}
    path = [name for name in names if _is_path(values.get(name), text)]
    told = {name: (name,) for _, name in _TOLD.findall(text) if name in names}
    for argument, flags in {**_FLAGS, "path": path, **told}.items():
        flags = [flag for flag in flags if flag in names]
        meant = [flag for flag in flags if _stands_in(values.get(flag), text)]
        found = [f"--{flag}" for flag in meant or flags]
        if found:
            said = " or ".join(f"`{flag}`" for flag in found)
            text = text.replace(f"`{argument}`", said)
        if len(found) == 1:
            renamed[argument] = found[0]
    return _TOLD.sub(
        lambda told: f"{told[1]}{renamed.get(told[2], told[2])}=", text
    )


def _is_path(value, text):
    """Tells whether a value, or one of a list, is the path an error tells."""
    given = value if isinstance(value, list) else [value]
    given = {one for one in given if one and isinstance(one, str)}
    given |= {os.path.normpath(one) for one in given}  # As pathlib has it.
    return any(
        re.search(rf" path=('?){re.escape(one)}\1(?=[,.:;]?(?:\s|$))", text)
        for one in given
    )


def _stands_in(value, text):
    """Tells whether an error speaks of a value, or of a preset's place."""
    said = str(value or "").removeprefix("hub:").removeprefix("./")
    return bool(said) and said in text
