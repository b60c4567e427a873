"""Reads, writes and verifies the SHA-256 checksums of a model's folder."""

import pathlib
import re

from tbnets.checks import Path
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError
from tbnets.files import CheckedFile, write_text

CHECKSUMS = "sha256.txt"
ANSWERS = "answers.json"
"""Expected embeddings of a model that `assembled` has to complete."""
_CURE = (
    "Restore the folder: `git checkout -- model_zoo` in a clone, `pip install "
    "--force-reinstall --no-deps` of the package elsewhere."
)


def model_files(path: Path) -> dict[str, pathlib.Path]:
    """Returns the files of a model: path relative to the folder -> full path.

    Omits the list of checksums. Includes links, without following them.
    """
    path = pathlib.Path(path)
    found = {
        one.relative_to(path).as_posix(): one
        for one in path.rglob("*")
        if one.is_symlink() or not one.is_dir()
    }
    found.pop(CHECKSUMS, None)
    return dict(sorted(found.items()))


def read_checksums(path: Path) -> dict[str, str]:
    """Reads the checksums of a folder: file name -> SHA-256.

    Raises:
        ValueError: a line is malformed, or repeats a file.
    """
    file = CheckedFile(pathlib.Path(path, CHECKSUMS))
    wanted = {}
    for number, line in enumerate(file.lines()[0], 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None or match[2] in wanted:
            file.report(
                "expected a SHA-256, two spaces and a file that is not yet "
                f"listed; found {line[:90]!r}. {_CURE}",
                number,
            )
        wanted[match[2]] = match[1]
    return wanted


def differences(folder, wanted):
    """Yields a short description of each missing or changed file.

    Args:
        folder: `pathlib.Path`.
        wanted: file name -> expected SHA-256.
    """
    for name, digits in sorted(wanted.items()):
        file = folder / name
        if pathlib.PurePath(name).is_absolute() or ".." in name.split("/"):
            yield f"{name} is not below the folder"
        elif not file.is_file():
            yield f"{name} is missing"
        elif file_sha256(file) != digits:
            yield f"{name} was changed: its SHA-256 differs"


def check_files(path: Path) -> None:
    """Raises a ValueError if files were changed, added or removed.

    Args:
        path: folder with `sha256.txt`.
    """
    path = pathlib.Path(path)
    wanted, found = read_checksums(path), model_files(path)
    problems = [
        *differences(path, wanted),
        *(f"{name} is a link" for name in found if found[name].is_symlink()),
        *(f"{name} was added" for name in found if name not in wanted),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise InputError(
            "The files of a zoo model must be unchanged. Received: "
            f"{path}, where {problems[0]}{more}. {_CURE}"
        )


def write_checksums(path: Path) -> None:
    """Writes the SHA-256 of all files, in the format of `sha256sum -c`."""
    files = model_files(path).items()
    lines = [f"{file_sha256(file)}  {name}\n" for name, file in files]
    write_text(pathlib.Path(path, CHECKSUMS), "".join(lines))
