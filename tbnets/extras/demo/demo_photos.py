"""The photos that a page may ask of: those of a folder, and those given to it.

A photo is asked for by its key, which is looked up in a list: no name that
comes in is ever made a path. What goes out is drawn anew, so that no other
file can leave.
"""

import collections
import functools
import hashlib
import os
import pathlib
import threading

import numpy as np
import PIL.Image

from tbnets.cores import usable_cores
from tbnets.data.images import read_photo
from tbnets.data.photos import sort_files
from tbnets.errors import MissingFileError
from tbnets.files import readable
from tbnets.serving import photo_index
from tbnets.visualization.page import jpeg

GIVEN = "given "
"""How the key of a photo begins that was given; no two are of one folder."""
MOST_GIVEN = 8
SIDES = (400, 1280)
"""Longer sides in pixels that a photo may be asked for."""
DRAWN = 256
"""Pictures that are kept, drawn."""


class Photos:
    """Photos that may be ranked and shown.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, subfolders included.
        cache: as of `photo_index.embed_folder`.

    Attributes:
        links_out: paths of its links that lead out of it, which are left out.

    Raises:
        FileNotFoundError: the folder holds no file named as a photo.
    """

    def __init__(self, model, folder, cache=None):
        self.folder = folder
        self._model, self._root = model, os.path.realpath(folder)
        found, self._others = sort_files(folder)
        self._paths = {n: x for n, x in found.items() if self._is_inside(x)}
        self.links_out = [
            one.path for n, one in found.items() if n not in self._paths
        ]
        if not self._paths:
            raise MissingFileError(
                "`folder` must hold photos. Received: folder="
                f"{folder}, which has links out of it alone. Name that folder."
            )
        self._names = dict(zip(_keys(self._paths), self._paths))
        self._given = collections.OrderedDict()
        self._index = photo_index.Index(cache, model, folder)
        self._embedded = None
        self._lock = threading.Lock()
        # Decoding takes the memory of a photo: so many are decoded at once.
        self.decoding = threading.BoundedSemaphore(usable_cores())
        self._draw = functools.lru_cache(DRAWN)(self._drawn)

    def __len__(self):
        """Returns how many files of the folder are named as photos."""
        return len(self._paths)

    @property
    def keys(self):
        """The keys of the folder's photos but those known to be broken."""
        broken = {key for key, one in self._known().items() if one.reason}
        return [key for key in self._names if key not in broken]

    @property
    def num_read(self):
        """How many of them were looked at so far, good or broken."""
        return len(self._known())

    def _known(self):
        """Returns what is known of the folder's photos: key -> `Entry`."""
        known = dict(self._index.entries)  # At once: another thread adds.
        return {k: known[n] for k, n in self._names.items() if n in known}

    def embed(self):
        """Embeds what is new in the folder; other threads may ask meanwhile.

        Raises: as `photo_index.embed_photos`.
        """
        photo_index.embed_photos(
            *(self._model, self.folder, self._paths),
            *(self._others, self._index),
        )
        self._embedded = self.embedded()

    def embedded(self):
        """Returns the keys and the embeddings of what is embedded so far."""
        if self._embedded:
            return self._embedded
        known = self._known().items()
        found = {key: one.embedding for key, one in known if not one.reason}
        rows = np.float32([*found.values()])
        return list(found), rows.reshape(len(found), self._model.embedding_dim)

    def give(self, content):
        """Takes a photo; the oldest of `MOST_GIVEN` is forgotten.

        Args:
            content: bytes of its file.

        Returns:
            Its key.

        Raises:
            BrokenImageError: it is no photo.
        """
        with self.decoding:
            read_photo(content)
        key = GIVEN + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._given[key] = content
            self._given.move_to_end(key)
            while len(self._given) > MOST_GIVEN:
                self._given.popitem(last=False)
        return key

    def find(self, key):
        """Returns a photo, its path or its bytes.

        Raises:
            FileNotFoundError: there is none, or it leads out of the folder.
        """
        if given := self._given.get(key):
            return given
        path = self._paths.get(self._names.get(key))
        if path is None or not self._is_inside(path):
            raise MissingFileError(
                "`photo` must be one that is served. Received: "
                f"photo={readable(key)}. Choose or drop it again; of one that "
                "is new in the folder, start tbnets demo again."
            )
        return path.path

    def picture(self, key, side):
        """Returns a photo as a JPEG, as the network sees it.

        Args:
            key: of the photo.
            side: its longer side in pixels at most, one of `SIDES`.

        Raises:
            FileNotFoundError, BrokenImageError: there is none to show.
        """
        found = self.find(key)
        is_file = isinstance(found, str)
        stamp = is_file and photo_index.stamp_of(pathlib.Path(found))
        return self._draw(found, stamp, side)

    def _drawn(self, photo, stamp, side):
        with self.decoding:
            return jpeg(PIL.Image.fromarray(read_photo(photo)), side)

    def _is_inside(self, path):
        """Tells whether a file, links followed, lies in the folder."""
        real = os.path.realpath(path)
        return os.path.commonpath([real, self._root]) == self._root


def _keys(names):
    """Yields a key of each name: as it can be read, and no two alike."""
    seen = set()
    for row, name in enumerate(names):
        key = readable(name)
        key = f"{key} ({row})" if key in seen else key
        seen.add(key)
        yield key
