"""What a checkpoint says a task has fitted, which may be a stranger's words."""

import numpy as np

from tbnets.checked_files import shown
from tbnets.errors import InputError


def _are_strings(values):
    return isinstance(values, list) and all(isinstance(v, str) for v in values)


def _are_cuts(value):
    kinds = [type(cut) for cut in value] if isinstance(value, list) else []
    return len(kinds) == 2 and set(kinds) <= {int, float}


def _are_vectors(value):
    is_array = isinstance(value, np.ndarray)
    return is_array and value.ndim == 2 and value.dtype.kind == "f"


SIDES = ("words", "image_dim", "text_dim")
"""What is fitted of images and texts; [] or None where there is none."""
_SIZE = (
    "a number from 1",
    lambda size: size is None or type(size) is int and size > 0,
)
_MADE_BY = "a dict", lambda value: isinstance(value, dict)
_KINDS = {
    "words": ("a list of words", _are_strings),
    "longest_text": (
        "a number from 0",
        lambda size: type(size) is int and size >= 0,
    ),
    "image_dim": _SIZE,
    "text_dim": _SIZE,
    "region_dim": _SIZE,
    "image_features_made_by": _MADE_BY,
    "text_features_made_by": _MADE_BY,
    "region_features_made_by": _MADE_BY,
    "left_out": (
        "a dict of reasons",
        lambda left: isinstance(left, dict) and _are_strings([*left.values()]),
    ),
    "split_cuts": ("two numbers", _are_cuts),
    "word_vectors": ("rows of numbers", _are_vectors),
    "word_vectors_coverage": _MADE_BY,
}


def check_same_words(fitted, before, path):
    """Refuses training data that give another vocabulary on resume.

    Args:
        fitted: what `TaskData.fit` returned now.
        before: what it returned when the run began.
        path: the checkpoint that remembers this.

    Raises:
        ValueError: the words differ.
    """
    now, then = fitted.get("words"), before.get("words")
    if now != then:
        raise InputError(
            "`--captions` must give the vocabulary the run was started "
            f"with. Received: {len(now or [])} words, {path} has "
            f"{len(then or [])}. Restore the training captions, or start "
            "a new --run_dir."
        )


def check_fitted_kinds(fitted, path, wanted):
    """Refuses what was fitted where it is of another kind than it must be.

    Args:
        fitted: name -> value, of a checkpoint.
        path: of the checkpoint.
        wanted: names that must be there, see `TaskData.fits`.

    Raises:
        ValueError: naming the first that is.
    """
    for name, (expected, is_right) in _KINDS.items():
        is_due = name in fitted or name in wanted
        if is_due and not is_right(fitted.get(name, "")):
            what = f"whose `{name}` is {shown(fitted.get(name))}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a checkpoint of tbnets. Received: one {what}; "
                f"expected {expected}. Use the run's other checkpoint, "
                "best.npz or last.npz."
            )
