"""What a checkpoint says a task has fitted, which may be a stranger's words."""

import numpy as np

from tbnets.checked_files import is_kind, shown
from tbnets.errors import InputError
from tbnets.files import write_text
from tbnets.text.vocabulary import Vocabulary

SIDES = ("words", "image_dim", "text_dim")
"""What is fitted of images and texts; [] or None where there is none."""
_KINDS = {
    "words": list[str],
    "longest_text": int,
    **dict.fromkeys(("image_dim", "text_dim", "region_dim"), int | None),
    "image_features_made_by": dict,
    "text_features_made_by": dict,
    "region_features_made_by": dict,
    "recipes": dict,
    "text_encoder_made_by": dict,
    "image_preset": dict,
    "left_out": dict[str, str],
    "split_cuts": list[float],
    "word_vectors": np.ndarray,
    "word_vectors_coverage": dict,
    "begun_with": dict,
}
_MORE = {
    "begun_with": lambda told: type(told.get("words")) is int,
    "split_cuts": lambda cuts: len(cuts) == 2,
    "word_vectors": lambda rows: rows.ndim == 2 and rows.dtype.kind == "f",
}
"""What must hold of some beside their kind."""


def write_fitted(fitted, folder):
    """Writes of what `TaskData.fit` returned what people read in a run."""
    if fitted.get("words"):
        Vocabulary(fitted["words"]).save(folder / "vocabulary.txt")
    if left_out := fitted.get("left_out"):
        lines = (f"{name}\t{why}\n" for name, why in left_out.items())
        write_text(folder / "left_out.txt", "".join(lines))


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
    for name in [name for name in _KINDS if name in {*fitted, *wanted}]:
        found, kind = fitted.get(name, ""), _KINDS[name]
        if not is_kind(found, kind) or not _MORE.get(name, lambda _: 1)(found):
            what = f"whose `{name}` is {shown(found)}, no {kind}"
            if name not in fitted:
                what = f"without `{name}`"
            raise InputError(
                f"{path} must be a checkpoint of tbnets. Received: one {what}. "
                "Use the run's other checkpoint, best.npz or last.npz."
            )
