"""What many verbs share: flags of a run, and what flags must be."""

import dataclasses
import pathlib

from tbnets.errors import InputError
from tbnets.flags.flag import flag


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


def check_place(name, path):
    """Refuses a file to write, the value of a flag, where no folder is."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise InputError(
            f"`--{name}` must be a file in a folder that is there. Received: "
            f"--{name}={path}. Make the folder, or choose another."
        )
