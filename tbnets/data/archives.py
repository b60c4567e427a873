"""Reads photos inside tar archives and parquet files, in any order.

The path of such a photo starts with the path of its archive, for example
`shards/train-000.tar/dog.jpg`. An archive is indexed once. Photos in tar
archives are read in place.
"""

import collections
import contextlib
import functools
import glob
import os
import pathlib
import posixpath
import re
import stat
import tarfile

from tbnets.data.parquet import ParquetFile
from tbnets.data.splits import SPLIT_FIELD
from tbnets.errors import (
    FileError,
    MissingFileError,
    NotAFileError,
)
from tbnets.files import BESIDE_SUFFIX, CheckedFile, ProblemError

PHOTO_SUFFIXES = tuple(
    ".jpg .jpeg .png .webp .gif .bmp .tif .tiff .avif .heic .heif".split()
)
SUFFIXES = (".tar", ".parquet")
_END = r"\.(?:tar|parquet)/"
INSIDE = rf"(?s).*{_END}.*"
"""Regular expression for all paths inside archives, and a few others."""
_NOT_A_FILE = FileNotFoundError, IsADirectoryError, NotADirectoryError


def list_archives(path, suffixes=SUFFIXES):
    """Returns the archives that a path names, in the order of their names.

    `path` is an archive, a folder, or a pattern in which `{split}` and `*`
    match any name and `{000..009}` means ten numbers. Raises FileNotFoundError
    if a pattern or one of its numbers matches no file.
    """
    path = os.fspath(path)
    if not path.endswith(suffixes) or os.path.isdir(path):
        return sorted(_below(path, suffixes))
    if os.path.isfile(path):
        return [path]
    archives = []
    for pattern in _expand_numbers(path.replace(SPLIT_FIELD, "*")):
        paths = sorted(glob.glob(pattern))
        if not paths:
            received = f"path={path}, but {pattern} does not exist"
            raise MissingFileError("path", "match archives", received)
        archives += paths
    return archives


def open_archives(path, suffixes=SUFFIXES, problems=None):
    """Opens the archives that a path names.

    Returns a list of (path below `photo_root`, archive). A damaged archive is
    left out after its `Problem` is added to `problems`; None raises it.
    """
    root, opened = photo_root(path), []
    for each in list_archives(path, suffixes):
        name = "" if root.is_file() else os.path.relpath(each, root)
        try:
            opened.append((name, open_archive(each)))
        except ProblemError as error:
            error.problem.raise_or_add_to(problems)
    return opened


def _below(folder, suffixes):
    for name, entry in walk_files(folder):
        if name.endswith(suffixes) and not entry.is_dir():
            yield entry.path


def walk_files(folder, before=""):
    """Yields (relative path, `os.DirEntry`) for each file below a folder.

    The entries of a folder are sorted by name. Links to folders are yielded
    like files. Names for which `is_left_out` is true are left out. Raises
    OSError if a subfolder cannot be listed. A folder that does not exist has no
    files.
    """
    try:
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
    except _NOT_A_FILE:
        return
    except OSError as error:
        raise FileError(
            error.errno,
            f"The folder {folder} cannot be listed: {error.strerror}. Make it "
            "readable, or move it elsewhere.",
        ) from error
    for entry in sorted_entries:
        if is_left_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from walk_files(entry.path, f"{before}{entry.name}/")
        else:
            yield before + entry.name, entry


_OF_SYSTEMS = {
    "@eaDir",
    "__MACOSX",
    "lost+found",
    "$RECYCLE.BIN",
    "System Volume Information",
}
"""Names of folders of operating systems, NAS devices and zip programs."""


def is_left_out(name):
    """Returns whether a file or folder is skipped when photos are listed.

    These are hidden files, folders of operating systems, and the folders of
    results (`files.folder_beside`).
    """
    is_hidden = name.startswith(".") or name in _OF_SYSTEMS
    return is_hidden or name.endswith(BESIDE_SUFFIX)


def photo_root(path):
    """Returns the folder or the archive to which photo names are relative."""
    path = os.fspath(path)
    if path.endswith(SUFFIXES) and not os.path.exists(path):
        path = os.path.dirname(re.split(r"[{*]", path)[0])
    return pathlib.Path(path)


def photos_inside(path):
    """Yields (id, path below the root) for each photo inside archives.

    The id is the photo's name in its archive, or the path if another archive
    has a photo with this name.
    """
    opened = open_archives(path)
    repeated = repeated_names(opened)
    for before, archive in opened:
        for name in archive.photos:
            place = posixpath.join(before, name)
            yield place if name in repeated else name, place


def repeated_names(opened):
    """Returns the names of photos in several archives of `open_archives`."""
    counts = collections.Counter(
        name for _, archive in opened for name in archive.photos
    )
    return {name for name, count in counts.items() if count > 1}


def has_archives(path):
    """Returns whether `list_archives` finds archives."""
    with contextlib.suppress(MissingFileError):
        return bool(list_archives(path))
    return False


def _expand_numbers(pattern):
    """Yields a pattern with ranges such as `{00..99}` replaced by numbers."""
    match = re.search(r"\{(\d{1,9})\.\.(\d{1,9})\}", pattern)
    if not match:
        yield pattern
        return
    before, after = pattern[: match.start()], pattern[match.end() :]
    for number in range(int(match[1]), int(match[2]) + 1):
        name = f"{before}{number:0{len(match[1])}}{after}"
        yield from _expand_numbers(name)


def is_photo_name(name):
    """Returns whether a file name has the suffix of a photo."""
    return posixpath.basename(name)[1:].lower().endswith(PHOTO_SUFFIXES)


def is_file(path):
    """Returns whether a path names a file, which may be inside an archive."""
    archive, name = _split(path)
    return name in archive.places if archive else os.path.isfile(path)


def read_bytes(path):
    """Returns the content of a file, which may be inside an archive."""
    archive, name = _split(path)
    if archive and name in archive.places:
        return archive.read(name)
    with open(path, "rb") as file:
        return file.read()


def stamp(path):
    """Returns the size in bytes and the modification time in ns of a file.

    For a photo inside an archive, returns the size and the time of the archive.
    """
    archive, _ = _split(path)
    state = os.stat(archive.path if archive else path)
    return state.st_size, state.st_mtime_ns


def _split(path):
    """Returns (archive, name in the archive) of a file, or (None, "")."""
    path = os.fsdecode(path)
    for match in re.finditer(_END, path):
        archive = path[: match.end() - 1]
        with contextlib.suppress(*_NOT_A_FILE):
            return open_archive(archive), path[match.end() :]
    return None, ""


def open_archive(path):
    """Opens an archive as `TarFiles` or `ParquetFile`, and caches the result.

    Raises OSError if the path is not a file.
    """
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise NotAFileError("path", "be a file", f"path={path}")
    return _opened(os.fspath(path), (state.st_size, state.st_mtime_ns))


@functools.cache
def _opened(path, stamp):
    # A new `stamp` (size, time) invalidates the cache.
    return TarFiles(path) if path.endswith(".tar") else ParquetFile(path)


class TarFiles:
    """The files in a tar archive.

    `places` maps file names to (offset, size) in bytes.
    """

    def __init__(self, path):
        self.path = path
        self.places = _tar_places(CheckedFile(path))

    @property
    def photos(self):
        """The names of the photos."""
        return filter(is_photo_name, self.places)

    def read(self, name):
        """Returns the content of a file."""
        offset, size = self.places[name]
        with open(self.path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size)


_BLOCK, _CHUNK_BYTES = 512, 1 << 20
_MOST_BYTES = 1 << 16
"""Maximum size in bytes of a file's metadata, such as a long name."""


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf, encoding, errors):
        # `tarfile` accepts metadata of any size, and negative sizes.
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or member.size > _MOST_BYTES and not member.isfile():
            raise tarfile.ReadError(f"a header with the size {member.size}")
        return member


def _tar_places(file):
    """Returns {name: (offset, size)} for the files in a tar archive."""
    places, end, size = {}, 0, os.path.getsize(file.path)
    kind = {"tarinfo": _Member, "encoding": "utf-8", "errors": "strict"}
    try:
        with tarfile.open(file.path, "r:", **kind) as members:
            for member in members:
                place = f"byte {member.offset}"
                if member.offset < end or member.size < 0 or member.issparse():
                    file.refuse("an ordinary file", member.name, place)
                end = member.offset_data
                if member.isfile():
                    end += -(-member.size // _BLOCK) * _BLOCK
                    if end > size:
                        text = f"{member.size} bytes of {member.name}"
                        file.refuse(text, size - member.offset_data, place)
                    _add_place(file, places, member, place)
                members.members.clear()  # They would take memory.
    except (tarfile.TarError, RecursionError, UnicodeDecodeError) as error:
        found = f"expected a tar archive; found: {error}."
        file.report(found, f"byte {end}")
    _check_end(file, end, size)
    return places


def _check_end(file, end, size):
    """Reports an archive that is cut, or followed by other bytes than zeros."""
    with open(file.path, "rb") as stream:
        stream.seek(end)
        chunks = iter(lambda: stream.read(_CHUNK_BYTES), b"")
        last = next((chunk for chunk in chunks if chunk.strip(b"\0")), b"")
    if last or end + _BLOCK > size:
        expected = "zeros after the last file of a tar archive"
        file.refuse(expected, last[:16], f"byte {end}")


def _add_place(file, places, member, place):
    name = file.file_name(posixpath.normpath(member.name), place)
    if name in places:
        file.refuse("unique names", name, place)
    if not posixpath.basename(name).startswith("."):
        places[name] = member.offset_data, member.size
