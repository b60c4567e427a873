r"""Generate a data set of scenes with captions, boxes and gold parse trees.

The scenes need no download. They are written in the formats of public
image-text data sets:

  tbnets make_scenes --folder=/tmp/scenes

This command writes 2000 training, 250 dev and 250 test scenes with about five
captions each. The same flags give identical bytes. A folder that already holds
these scenes is not changed.

Draw some of the scenes, with the boxes of the objects:

  tbnets make_scenes --folder=/tmp/scenes \
      --contact_sheet=/tmp/scenes.png --draw_boxes
"""

import dataclasses
import json
import pathlib
import textwrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tbnets.data.scenes.dataset import DATASET, RECORDS, ensure_scenes
from tbnets.data.scenes.layout import SPLITS, SceneSettings
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import REQUIRED, Whole, flag
from tbnets.visualization.boxes import PhraseBox, draw_boxes
from tbnets.visualization.montage import draw_sheet

NUM_SHOWN = 12
PICTURE_WIDTH, CELL_WIDTH, CELL_HEIGHT = 384, 440, 620


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
    image_size: int = flag(
        SceneSettings.image_size, "Width and height of the images, in pixels."
    )
    seed: int = flag(
        SceneSettings.seed,
        "Seed of the scenes. No test scene has the same objects as a training "
        "scene.",
    )
    clutter: float = flag(
        SceneSettings.clutter,
        "Clutter, from 0 (only the objects) to 1 (many lines and blots, "
        "strong noise).",
    )
    contact_sheet: str = flag(
        "", "Picture (.png) of twelve scenes with their captions."
    )
    draw_boxes: bool = flag(False, "Draw the objects' boxes in this picture.")


def choose_scenes(scenes):
    """Returns up to `NUM_SHOWN` scenes, spread evenly over the splits."""
    groups = [[s for s in scenes if s["split"] == name] for name in SPLITS]
    filled, chosen = [group for group in groups if group], []
    for group in filled:
        count = min(NUM_SHOWN // len(filled), len(group))
        chosen += [group[row * len(group) // count] for row in range(count)]
    return chosen


def draw_contact_sheet(options):
    """Draws up to twelve scenes, each above its captions."""
    folder, path = map(pathlib.Path, (options.folder, options.contact_sheet))
    with open(folder / RECORDS, encoding="utf-8") as lines:
        scenes = choose_scenes(list(map(json.loads, lines)))
    cells = [
        draw_scene_cell(folder, scene, options.draw_boxes) for scene in scenes
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet([cells]).save(path, "PNG")


def draw_scene_cell(folder, scene, has_boxes):
    """Draws one enlarged scene above its captions."""
    cell = Image.new("RGB", (CELL_WIDTH, CELL_HEIGHT), "white")
    name = f"{scene['id']}.jpg"
    with Image.open(folder / "images" / name) as image:
        pixels = np.asarray(image.convert("RGB"))
    boxes = [item["box"] for item in scene["objects"] if has_boxes]
    numbered = [PhraseBox(box, str(i), i) for i, box in enumerate(boxes)]
    picture = draw_boxes(pixels, numbered, PICTURE_WIDTH)
    cell.paste(Image.fromarray(picture), (12, 8))
    lines = [f"{scene['split']} {name}"]
    for caption in scene["captions"]:
        words = "- " + caption["raw"].replace(" .", ".").replace(" ,", ",")
        lines += textwrap.wrap(words, 60, subsequent_indent="  ")
    font, place = ImageFont.load_default(15), (12, PICTURE_WIDTH + 14)
    text = "\n".join(lines)
    ImageDraw.Draw(cell).text(place, text, "black", font, spacing=5)
    return np.asarray(cell)


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
    """Writes the scenes and the contact sheet."""
    names = [field.name for field in dataclasses.fields(SceneSettings)]
    settings = SceneSettings(*(vars(options)[name] for name in names))
    with progress_bar(settings.num_scenes, "drawing", "scene") as bar:
        summary = ensure_scenes(options.folder, settings, bar.update)
    if options.contact_sheet:
        draw_contact_sheet(options)
        print(f"Contact sheet in {options.contact_sheet}")
    print_summary(summary)
