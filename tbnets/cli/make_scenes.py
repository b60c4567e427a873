r"""Generate a data set of scenes with captions, boxes and gold parse trees.

The scenes need no download. They are written in the formats of public
image-text data sets:

  tbnets make_scenes --folder=/tmp/scenes

This command writes 2000 training, 250 dev and 250 test scenes with about five
captions each. The same flags give identical bytes. A folder that already holds
these scenes is not changed.
"""

import dataclasses
import pathlib

from tbnets.data.scenes.dataset import DATASET, ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import REQUIRED, Count, Whole, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the scenes and their folder."""

    folder: str = flag(
        REQUIRED, "Folder to write; created if it does not exist."
    )
    num_train: Whole = flag(SceneSettings.num_train, "Training scenes.")
    num_dev: Whole = flag(
        SceneSettings.num_dev, "Dev scenes, split val in dataset.json."
    )
    num_test: Whole = flag(SceneSettings.num_test, "Test scenes.")
    image_size: Count = flag(
        SceneSettings.image_size, "Width and height of the images, in pixels."
    )
    seed: Whole = flag(
        SceneSettings.seed,
        "Seed of the scenes. No test scene has the same objects as a training "
        "scene.",
    )
    clutter: float = flag(
        SceneSettings.clutter,
        "Clutter, from 0 (only the objects) to 1 (many lines and blots, "
        "strong noise).",
    )


def print_summary(summary):
    """Prints the contents of the folder and the command to run next."""
    done = "Found" if summary["reused"] else "Wrote"
    folder = pathlib.Path(summary["folder"]).resolve()
    text = (
        f"{done} {summary['num_train']} training, {summary['num_dev']} dev "
        f"and {summary['num_test']} test scenes with "
        f"{summary['num_captions']} captions in {folder}\n"
        f"  images {summary['image_size']} x {summary['image_size']}, seed "
        f"{summary['seed']}, clutter {summary['clutter']}, dataset.json "
        f"sha256 {summary['dataset_sha256'][:12]}\n"
        "Next, train on them:\n"
        "  tbnets train --flagfile=configs/quickstart.flags \\\n"
        "      --run_dir=runs/scenes_own --scenes= \\\n"
        f"      --captions={folder / DATASET} \\\n"
        f"      --images={folder / 'images'}"
    )
    print(text)


def main(options):
    """Writes the scenes."""
    names = [field.name for field in dataclasses.fields(SceneSettings)]
    settings = SceneSettings(*(vars(options)[name] for name in names))
    with progress_bar(settings.num_scenes, "drawing", "scene") as bar:
        summary = ensure_scenes(options.folder, settings, bar.update)
    print_summary(summary)
