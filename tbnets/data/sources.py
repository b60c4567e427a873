"""Finds the files and folders that the data flags of a run name."""

import contextlib
import dataclasses
import os
import pathlib

from tbnets.data import splits
from tbnets.data.archives import has_archives, photo_root
from tbnets.data.captions import CaptionSource
from tbnets.data.layouts import Columns
from tbnets.data.scenes.dataset import DATASET, ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.splits import NoSuchSplit, fill_split
from tbnets.errors import InputError, MissingFileError
from tbnets.progress import progress_bar

_SCENES = "Set it, or set --scenes for the embedded data set."
_ADVICE = {
    "captions": _SCENES,
    "images": _SCENES,
    "image_features": "Set it, for example "
    "--image_features=features/lite0.flags for features of the photos in "
    "--images. Or set only --images=FOLDER.",
    "text_features": "Set it, for example "
    "--text_features=features/tfidf.flags. Or set a --text_encoder that learns "
    "from the words.",
    "phrases": "Write a table of images, phrases and boxes "
    "(docs/data_formats.md), or predict boxes with tbnets localize.",
    "regions": "Set it, for example --regions=features/regions_grid.flags.",
    "trees": "Set it, for example --trees=features/parsed.flags.",
}
"""Maps each flag to advice for the error message if it is not set."""
METADATA = ("metadata.csv", "metadata.jsonl")
"""Caption files that the `datasets` library writes beside photos."""
MADE = "made"
"""Name of the folder for the results of recipes."""


def is_recipe(item):
    """Returns whether an item in a flag names a recipe, not a file or store."""
    return item.endswith(".flags") or item.startswith("hub:")


@dataclasses.dataclass(frozen=True)
class Sources:
    """The values of the data flags.

    Relative paths are resolved against `data_root`, and a relative `data_root`
    against `started_in`, the folder where the run was started.
    """

    data_root: str = "data"
    started_in: str = ""
    scenes: str = ""
    num_scenes: tuple = ()
    captions: str = ""
    image_column: str = ""
    caption_column: tuple = ()
    split_column: str = ""
    split_lists: str = ""
    train_split: str = "train"
    dev_split: str = "dev"
    test_split: str = "test"
    images: str = ""
    image_features: str = ""
    text_features: str = ""
    regions: str = ""
    phrases: str = ""
    trees: str = ""
    word_vectors: str = ""

    def rendered(self):
        """Returns a copy with the files of the scenes, if `scenes` is set.

        Renders the scenes if they do not exist.
        """
        if not self.scenes:
            return self
        folder = os.path.abspath(self.from_start(self.scenes))
        scenes, label = SceneSettings(*self.num_scenes), "rendering scenes"
        with progress_bar(scenes.num_scenes, label, "scene") as bar:
            ensure_scenes(folder, scenes, bar.update)
        return dataclasses.replace(
            self,
            scenes="",
            captions=os.path.join(folder, DATASET),
            split_lists="",
            images=os.path.join(folder, "images"),
            phrases=self.phrases or folder,
            trees=self.trees or os.path.join(folder, "trees"),
        )

    @property
    def run_splits(self):
        """The names of the splits to train, choose the best epoch and test."""
        return self.train_split, self.dev_split, self.test_split

    def from_start(self, path):
        """Resolves a path against `started_in`."""
        return pathlib.Path(self.started_in) / path

    @property
    def starts(self):
        """The folders for relative paths: the data root, then `started_in`."""
        return self.from_start(self.data_root), self.from_start("")

    def resolve(self, path, split=None):
        """Resolves `path` against the data root and replaces `{split}`.

        A path that does not exist there is looked up in `started_in`. If it
        does not exist in either folder, returns the path in the data root.
        """
        places = [start / path for start in self.starts]
        for place in places:
            with contextlib.suppress(NoSuchSplit, MissingFileError):
                file = place if split is None else fill_split(place, split)
                if os.path.exists(file) or has_archives(file):
                    return pathlib.Path(file)
        missing = os.fspath(places[0])
        if split is not None:
            missing = missing.replace(splits.SPLIT_FIELD, split)
        return pathlib.Path(missing)

    def value(self, flag):
        """Returns the value of a flag. Raises ValueError if it is empty."""
        value = getattr(self, flag)
        if not value:
            raise InputError(f"--{flag}", "be set", f"--{flag}=", _ADVICE[flag])
        return value

    def file(self, flag, item="", split=None):
        """Returns an existing path that a flag names.

        `item` is one of the flag's items, by default the whole value. `split`
        replaces `{split}`; if it is None, such a path need not exist.
        """
        path = self.resolve(item or self.value(flag), split)
        is_pattern = splits.SPLIT_FIELD in os.fspath(path)
        if not (is_pattern or path.exists() or has_archives(path)):
            raise MissingFileError(
                f"--{flag}",
                "name an existing file or folder",
                f"--{flag}={getattr(self, flag)}, which is not at {path}",
                f"Set --data_root={self.data_root}, or the environment "
                "variable TBNETS_DATA, to the folder of your data.",
            )
        return path

    def caption_source(self):
        """Returns the `CaptionSource` of the run's captions."""
        names = self.image_column, tuple(self.caption_column), self.split_column
        path, photos = self.file("captions"), self.photo_folder or ""
        lists = self.split_lists and self.resolve(self.split_lists)
        return CaptionSource(path, Columns(*names), photos, lists)

    def items(self, flag):
        """Returns the comma-separated items of a flag."""
        return [item.strip() for item in getattr(self, flag).split(",")]

    @property
    def made_roots(self):
        """The folders that may contain the results of recipes."""
        # The last root is used if `data` links to a read-only folder.
        roots = map(self.from_start, (self.data_root, "data", ""))
        return tuple(dict.fromkeys(root / MADE for root in roots))

    @property
    def photo_folder(self):
        """The folder or archive to which the names of photos are relative.

        It is None if `images` is not set.
        """
        return photo_root(self.resolve(self.images)) if self.images else None

    def captions_beside_photos(self):
        """Returns {"captions": path} if captions are beside photos, else {}."""
        paths = (self.photo_folder / name for name in METADATA)
        found = [os.path.abspath(path) for path in paths if path.is_file()]
        return {"captions": found[0]} if found else {}
