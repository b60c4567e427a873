"""What a run reads, by the flags that name it, and where that lies."""

import contextlib
import dataclasses
import os
import pathlib

from tbnets.data import splits
from tbnets.data.scenes.dataset import DATASET, ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.splits import NoSuchSplit, fill_split, splits_in_path
from tbnets.data.store.manifest import MANIFEST
from tbnets.errors import InputError, MissingFileError
from tbnets.progress import progress_bar

_SCENES = "Set it, or --scenes for the embedded data set."
_PHOTOS = (
    "Set it: --image_features=features/lite0.flags makes them of the photos "
    "of --images. Or set --images=FOLDER alone."
)
_WORDS = (
    "Set it: --text_features=features/tfidf.flags makes them. Or set another "
    "--text_encoder to learn from the words."
)
_TREES = "Set it: --trees=features/parsed.flags makes one."
_BOXES = (
    "Captions alone do not tell boxes: write a table of image, phrase and box "
    "(docs/phrases.md), or ask a trained model by tools/localize.py."
)
_REGIONS = "Set it: --regions=features/regions_grid.flags makes them."
_UNSET = {
    "captions": ("the captions to read", _SCENES),
    "images": ("the folder of the photos", _SCENES),
    "image_features": ("a feature array", _PHOTOS),
    "text_features": ("a feature array", _WORDS),
    "phrases": ("phrases and their boxes", _BOXES),
    "regions": ("features of regions", _REGIONS),
    "trees": ("a file of trees", _TREES),
}
"""Flag -> what it must name, what to do."""
MADE = "made"
"""Folder below the data root of what recipes make."""


def is_recipe(item):
    """Tells whether what a flag names is a recipe, not a file or store."""
    return item.endswith(".flags") or item.startswith("hub:")


@dataclasses.dataclass(frozen=True)
class Sources:
    """The files that the flags of the same names name.

    Relative paths start from `data_root`, which starts, if it is relative,
    from `started_in`: the folder that the run was started in.
    """

    data_root: str = "data"
    started_in: str = ""
    scenes: str = ""
    num_scenes: tuple = ()
    captions: str = ""
    captions_format: str = "karpathy"
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
        """Returns the same, the embedded data set as the files it is.

        It is rendered where it is not there yet.
        """
        if not self.scenes:
            return self
        folder = os.path.abspath(self.from_start(self.scenes))
        scenes, what = SceneSettings(*self.num_scenes), "rendering scenes"
        with progress_bar(scenes.num_scenes, what, "scene") as bar:
            ensure_scenes(folder, scenes, bar.update)
        return dataclasses.replace(
            self,
            scenes="",
            captions=os.path.join(folder, DATASET),
            captions_format="karpathy",
            split_lists="",
            images=os.path.join(folder, "images"),
            phrases=self.phrases or folder,
            trees=self.trees or os.path.join(folder, "trees"),
        )

    def from_start(self, path):
        """Returns a relative path from the folder of the start."""
        return pathlib.Path(self.started_in) / path

    @property
    def starts(self):
        """Folders that relative places start from: data root, then start."""
        return self.from_start(self.data_root), self.from_start("")

    def resolve(self, path, split=None):
        """Returns `path` below the data root, with `{split}` filled in.

        A feature store or a file that is not there is looked for in the
        folder of the start too, where the tools write what they make.

        Raises:
            NoSuchSplit: of no file is there one of this split.
        """
        below = self.from_start(self.data_root) / path
        places = [below, self.from_start(path)]
        for place in places:
            with contextlib.suppress(NoSuchSplit):
                found = place if split is None else fill_split(place, split)
                found = pathlib.Path(found)
                is_made = found.is_file() or (found / MANIFEST).is_file()
                if is_made or (place is below and found.exists()):
                    return found
        if split is None:
            return below
        # It is nowhere: the error is about the place that has other splits.
        pattern = max(places, key=lambda place: len(splits_in_path(place)))
        return pathlib.Path(fill_split(pattern, split))

    def value(self, flag):
        """Returns what a flag says, which must be something."""
        found = getattr(self, flag)
        if not found:
            what, advice = _UNSET[flag]
            raise InputError(
                f"--{flag}",
                f"name {what}",
                f"--{flag}=",
                f"{advice}",
            )
        return found

    def file(self, flag):
        """Returns the path a flag names, there unless it has `{split}`."""
        path = self.resolve(self.value(flag))
        if splits.SPLIT_FIELD not in os.fspath(path) and not path.exists():
            raise self.nowhere(flag, path)
        return path

    def items(self, flag):
        """Returns what a flag names, of which several stand side by side."""
        return [item.strip() for item in getattr(self, flag).split(",")]

    @property
    def made_roots(self):
        """The folders that keep what recipes make."""
        # Where data are a link to what can not be written, `data` is none.
        roots = map(self.from_start, (self.data_root, "data", ""))
        return tuple(dict.fromkeys(root / MADE for root in roots))

    @property
    def photo_folder(self):
        """The folder that the photos' file names start from.

        One that is not below the data root is looked for in the folder of
        the start.
        """
        here = self.from_start(self.images)
        below = self.resolve(self.images)
        return here if here.is_dir() and not below.exists() else below

    def nowhere(self, flag, path):
        """Returns the error of a path that is not there: where it is sought."""
        return MissingFileError(
            f"`--{flag}` must name what is there. Received: --{flag}="
            f"{getattr(self, flag)}, looked for as {path}. Set --data_root="
            f"{self.data_root}, or the environment variable TBNETS_DATA, to "
            "the folder of your data; docs/data_formats.md says what it holds."
        )
