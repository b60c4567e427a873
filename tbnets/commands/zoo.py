r"""Tells which models come along, or writes one as a whole SavedModel.

  python tools/zoo.py

prints a line a model: its task, its language, the size of what comes along,
and its recalls. Each is loaded by its name, --model=NAME, of other tools.

  python tools/zoo.py --export=flickr8k_photos served

writes served/flickr8k_photos/1, or the next version: a SavedModel for
TensorFlow Serving, or for any program with TensorFlow and TF Text. A model of
which the branches alone come along is put together first, which needs
pip install "tbnets[photos]" once; what is written needs neither it nor tbnets.
It is kept below $TBNETS_CACHE, by default ~/.cache/tbnets.

tools/export.py --model=NAME writes a model with fewer signatures, with an
index, or with what a server warms up by. docs/zoo.md tells more.
"""

import dataclasses
import pathlib
import shutil

from tbnets.errors import InputError
from tbnets.files import new_folder
from tbnets.flags.flag import flag
from tbnets.serving import zoo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Which model is written, and where."""

    export: str = flag("", "Name of a model to write.")
    folder: list[str] = flag(
        [], "Folder to write it below, as FOLDER/NAME/1.", kind="words"
    )


def main(options):
    """Prints the table, or writes a model."""
    if bool(options.export) + len(options.folder) not in (0, 2):
        raise InputError(
            "`--export` must come with one folder to write below. Received: "
            f"--export={options.export} and {len(options.folder)} folders. "
            "Write for example tools/zoo.py --export=flickr8k_photos served."
        )
    if not options.export:
        print(zoo.describe())
        return
    zoo.check_name(options.export, "--export")
    print(f"SavedModel  {write(options.export, options.folder[0])}")


def write(name, folder):
    """Writes a model as the next version below a folder; returns its path."""
    source = zoo.locate(name) / "1"
    from tbnets.serving.export import next_version

    folder = pathlib.Path(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / str(next_version(folder))
    with new_folder(path) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
    return path
