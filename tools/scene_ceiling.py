"""Computes the best recall that the captions of rendered scenes allow.

  python tools/scene_ceiling.py --scenes=runs/scenes

A caption such as "three shapes on a grey background" is true of several scenes,
so no network can always find the right scene. This command finds, for each
caption, all scenes that the caption describes correctly, and prints the recall
of a perfect observer (docs/scenes.md).
"""

import collections
import dataclasses
import itertools
import math
import pathlib
import sys

from tbnets import cli
from tbnets.checks import per_cent
from tbnets.data.scenes.dataset import RECORDS
from tbnets.data.scenes.grammar import NEAR
from tbnets.data.scenes.layout import (
    SPLITS,
    find_gap,
    find_position,
    find_relation,
)
from tbnets.evaluation.tables import aligned
from tbnets.files import CheckedFile
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import flag

RANKS = (1, 5, 10)
_ATTRIBUTES = ("shape", "colour", "size", "texture")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the scenes and their split."""

    scenes: str = flag(
        "runs/scenes", "Folder of tbnets make_scenes or of a run."
    )
    split: str = flag(
        "test", "Split to measure; the dev split is called val.", choices=SPLITS
    )


def is_true(claims, record, image_size):
    """Returns whether a caption with these claims is true of a scene.

    "A red circle" is true of a scene with two red circles. "Two circles" is
    false of a scene with three circles.
    """
    # Rejects most scenes quickly, because they lack an object.
    for claim in claims:
        if claim["kind"] == "object" and not _fitting(claim, record):
            return False
    spoken_of = sorted({row for claim in claims for row in claim["objects"]})
    for rows in itertools.permutations(
        range(len(record["objects"])), len(spoken_of)
    ):
        meant = dict(zip(spoken_of, rows))
        if all(_holds(claim, meant, record, image_size) for claim in claims):
            return True
    return False


def _holds(claim, meant, record, image_size):
    rows, objects = [meant[row] for row in claim["objects"]], record["objects"]
    boxes = [objects[row]["box"] for row in rows]
    kind = claim["kind"]
    if kind == "background":
        return record["background"] == claim["colour"]
    if kind == "relation":
        return _stand(boxes[0], boxes[1], claim["relation"], image_size)
    if kind == "between":
        middle, *ends = boxes
        stands = {find_relation(end, middle) for end in ends}
        return stands in ({"left", "right"}, {"above", "below"})
    if kind == "position":
        return find_position(boxes[0], image_size) == claim["position"]
    fitting = _fitting(claim, record)
    return fitting == set(rows) if kind == "count" else fitting >= set(rows)


def _fitting(claim, record):
    attributes = [(name, claim[name]) for name in _ATTRIBUTES if name in claim]
    return {
        row
        for row, item in enumerate(record["objects"])
        if all(item[name] == value for name, value in attributes)
    }


def _stand(box, other, relation, image_size):
    actual = find_relation(box, other)
    if relation != "beside":
        return actual == relation
    near = find_gap(box, other) <= NEAR * image_size
    return near and actual in ("left", "right")


def truths(records, image_size, on_scene=lambda: None):
    """Finds the scenes that each caption describes correctly.

    Returns, for each caption, the row of its own scene and the set of rows of
    all scenes that it describes. Calls `on_scene()` after each scene.
    """
    results = []
    for row_of_scene, scene in enumerate(records):
        for caption in scene["captions"]:
            rows = {
                row
                for row, record in enumerate(records)
                if is_true(caption["claims"], record, image_size)
            }
            results.append((row_of_scene, rows))
        on_scene()
    return results


def ceiling(captions, num_scenes):
    """Returns the expected recalls of a perfect observer, as fractions.

    `captions` is the result of `truths`. From text to image, all scenes that a
    caption describes are tied. From image to text, captions that describe fewer
    scenes rank higher.
    """
    # Per scene: number of true scenes -> [own captions, other captions].
    answers = [{} for _ in range(num_scenes)]
    for row_of_scene, scenes in captions:
        for row in scenes:
            counts = answers[row].setdefault(len(scenes), [0, 0])
            counts[row != row_of_scene] += 1
    to_text = [[groups[n] for n in sorted(groups)] for groups in answers]
    to_image = [[[1, len(scenes) - 1]] for _, scenes in captions]
    return {
        f"{direction}/recall_at_{rank}": math.fsum(
            chance_of_a_hit(groups, rank) for groups in queries
        )
        / len(queries)
        for direction, queries in (
            ("image_to_text", to_text),
            ("text_to_image", to_image),
        )
        for rank in RANKS
    }


def chance_of_a_hit(groups, rank):
    """Returns the chance that the first `rank` results include a right result.

    `groups` is a list of `(right, wrong)` pairs, the numbers of right and wrong
    results in each group, best group first. The order within a group is random.
    """
    for right, wrong in groups:
        if rank <= right + wrong:
            # Chance that `rank` results drawn from this group are all wrong.
            missed = math.comb(wrong, rank) / math.comb(right + wrong, rank)
            return 1 - missed
        if right:
            return 1.0
        rank -= wrong
    return 0.0


def print_ceiling(captions, num_scenes):
    """Prints the shares of ambiguous captions and the best possible recalls."""
    counts = collections.Counter(len(scenes) for _, scenes in captions)
    shares = [counts[n] / len(captions) for n in (1, 2)]
    cells = [f"{per_cent(share)}%" for share in (*shares, 1 - sum(shares))]
    print(
        f"{num_scenes} scenes, {len(captions)} captions: true of one scene "
        f"{cells[0]}, of two {cells[1]}, of more {cells[2]}"
    )
    print(aligned("", [f"R@{k}" for k in RANKS]))
    best = ceiling(captions, num_scenes)
    for direction in ("image_to_text", "text_to_image"):
        cells = [per_cent(best[f"{direction}/recall_at_{k}"]) for k in RANKS]
        print(aligned(direction.replace("_to_", " to "), cells))
    print(f"recall sum {per_cent(sum(best.values()))}")


def main(options):
    """Prints the best possible recall on a split."""
    folder = pathlib.Path(options.scenes)
    size = CheckedFile(folder / "manifest.json").json()["image_size"]
    rows = CheckedFile(folder / RECORDS).json_rows(("split",))
    records = [row for _, row in rows if row["split"] == options.split]
    with progress_bar(len(records), "comparing", "scene") as bar:
        captions = truths(records, size, bar.update)
    print_ceiling(captions, len(records))


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
