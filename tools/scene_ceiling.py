"""Computes the best recall that the captions of rendered scenes allow.

  python tools/scene_ceiling.py --scenes=runs/scenes

A caption such as "three shapes on a grey background" is true of several scenes,
so no network can always find the right scene. This command counts the scenes of
which each caption is true, and prints the recall of a perfect observer
(docs/scenes.md).
"""

import collections
import dataclasses
import pathlib
import sys

from measuring import ambiguity

from tbnets import cli
from tbnets.checks import per_cent
from tbnets.data.scenes.dataset import RECORDS
from tbnets.data.scenes.layout import SPLITS
from tbnets.errors import InputError
from tbnets.files import CheckedFile
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the scenes and their split."""

    scenes: str = flag(
        "runs/scenes", "Folder of tools/make_scenes.py or of a run."
    )
    split: str = flag(
        "test", "Split to measure; the dev split is called val.", choices=SPLITS
    )


def image_size(folder):
    """Returns the width and height of the images of scenes, in pixels."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(
            "--scenes",
            "be a folder of scenes",
            f"--scenes={folder}, without {path.name}",
            "Make the scenes with tools/make_scenes.py.",
        )
    manifest = CheckedFile(path).json()
    size = manifest.get("image_size") if isinstance(manifest, dict) else None
    if type(size) is not int or size < 1:
        raise InputError(
            f"{path}: expected `image_size`, in pixels, >= 1; found "
            f"{size!r}. Make the scenes again."
        )
    return size


def print_ceiling(captions, num_scenes):
    """Prints the shares of ambiguous captions and the best possible recalls."""
    counts = collections.Counter(len(scenes) for _, scenes in captions)
    shares = [counts[n] / len(captions) for n in (1, 2)]
    cells = [f"{per_cent(share)}%" for share in (*shares, 1 - sum(shares))]
    print(
        f"{num_scenes} scenes, {len(captions)} captions: true of one scene "
        f"{cells[0]}, of two {cells[1]}, of more {cells[2]}"
    )
    print(f"{'':15}" + "".join(f"{f'R@{k}':>9}" for k in ambiguity.RANKS))
    best = ambiguity.ceiling(captions, num_scenes)
    for direction in ("image_to_text", "text_to_image"):
        cells = [
            f"{per_cent(best[f'{direction}/recall_at_{k}']):>9}"
            for k in ambiguity.RANKS
        ]
        print(f"{direction.replace('_to_', ' to '):15}" + "".join(cells))
    print(f"recall sum {per_cent(sum(best.values()))}")


def main(options):
    """Prints the best possible recall on a split."""
    folder = pathlib.Path(options.scenes)
    size = image_size(folder)
    records = ambiguity.read_records(folder / RECORDS, options.split)
    with progress_bar(len(records), "comparing", "scene") as bar:
        captions = ambiguity.truths(records, size, bar.update)
    print_ceiling(captions, len(records))


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
