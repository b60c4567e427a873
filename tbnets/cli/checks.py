"""What many verbs share: flags of a run, and what flags must be."""

import dataclasses
import pathlib
from typing import Annotated

from tbnets.errors import InputError
from tbnets.evaluation.choices import CHOICES, CHOOSING, TEMPERATURE
from tbnets.tasks.settings.flag import Limits, changed, flag, must_come_with


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfRun:
    """Which epoch of a run is meant, and where its data are now."""

    checkpoint: str = flag(
        "best", "Epoch of the run.", choices=["best", "last"]
    )
    data_root: str = flag(
        "",
        "Folder that relative data paths start from now; by default as "
        "TBNETS_DATA or the run says.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choosing:
    """Which box answers a phrase."""

    choice: str = flag(
        CHOICES[0],
        "Box that answers a phrase. most_similar: as in the papers; "
        "expected_overlap: what many similar boxes agree on; mean_box: the "
        "mean of the boxes that overlap the most similar one by half, which "
        "HM-LSTM and crops do not take.",
        choices=CHOICES,
    )
    choice_temperature: Annotated[float, Limits(0, above=True)] = flag(
        TEMPERATURE,
        "Of --choice: boxes weigh softmax(similarity / temperature); with "
        "--combine_with of minus the summed distances.",
    )
    choice_area_exponent: Annotated[float, Limits(0)] = flag(
        0.0, "Of --choice: and that times their area to this power."
    )


def check_choosing(options):
    """Refuses numbers that nothing is weighed by."""
    given = changed(options)
    for name in CHOOSING[1:]:
        if name in given and "choice" not in given:
            others = " or ".join(f"--choice={name}" for name in CHOICES[1:])
            raise must_come_with(options, name, others)


def chosen(options):
    """Returns how boxes are to be chosen, name -> value; {} as ever."""
    if "choice" not in changed(options):
        return {}
    return {name: getattr(options, name) for name in CHOOSING}


def check_place(name, path, ending=""):
    """Raises an InputError if a flag names a file that can not be written.

    Args:
        name: of the flag.
        path: its value; "" is left alone.
        ending: that the file must have, such as ".png"; "" for any.
    """
    check_ending(name, path, ending)
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise InputError(
            f"`--{name}` must be a file in a folder that is there. Received: "
            f"--{name}={path}. Make the folder, or choose another."
        )


def check_ending(name, path, ending):
    """Raises an InputError if the file of a flag has another ending.

    Args:
        name: of the flag.
        path: its value; "" is left alone.
        ending: such as ".png".
    """
    if path and not path.lower().endswith(ending):
        raise InputError(
            f"`--{name}` must be a file that ends with {ending}. Received: "
            f"--{name}={path}. Write --{name}={path}{ending}."
        )
