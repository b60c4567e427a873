"""What verbs share that write files, or ask a model questions in words."""

import dataclasses
import pathlib

from tbnets.errors import InputError
from tbnets.flags.flag import flag

MODEL = (
    "Name of a model of the zoo (model_zoo/README.md); or folder of a run of "
    "tools/train.py, whose newest SavedModel is asked; or of one version, "
    "RUN/saved_model/1."
)
"""What --model takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Which model is asked."""

    model: str = flag("runs/quickstart", MODEL)
    trust: bool = flag(
        False,
        "Load --model whatever ops its graph has: a SavedModel of others can "
        "write files when it is called.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataRoot:
    """Where the data of a run are now."""

    data_root: str = flag(
        "",
        "Folder that a run's relative data paths start from now; by default as "
        "TBNETS_DATA or the run says.",
    )


def check_text(tool, texts):
    """Refuses sentences with bytes that are no text."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"`{tool}` must be asked in UTF-8. Received: {text!r}. Convert "
                "the words, or set the terminal to UTF-8."
            ) from error


def check_place(name, path):
    """Refuses a file to write, the value of a flag, where no folder is."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise InputError(
            f"`--{name}` must be a file in a folder that is there. Received: "
            f"--{name}={path}. Make the folder, or choose another."
        )
