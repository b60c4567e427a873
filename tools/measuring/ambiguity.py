"""How far captions tell scenes apart: what no network can do better.

A caption of one scene may be true of others. Whoever searches by it cannot
know which of them is meant. `is_true` decides by what the caption claims and
by how the scene was drawn, `ceiling` turns that into the best recall that
anyone can expect who sees every scene rightly and knows nothing else.
"""

import itertools
import math

from tbnets.data.scenes.layout import find_gap, find_position, find_relation
from tbnets.data.scenes.phrases import NEAR
from tbnets.errors import InputError
from tbnets.files import CheckedFile

RANKS = (1, 5, 10)
_ATTRIBUTES = ("shape", "colour", "size", "texture")


def read_records(path, split):
    """Reads the scenes of a split.

    Args:
        path: `scenes.jsonl` of a folder of scenes.
        split: "train", "val" or "test".

    Returns:
        list of dicts, as `files.scene_record` makes them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no scene, or there is none of this split.
    """
    file, records = CheckedFile(path), []
    for number, record in file.json_rows(("split", "objects", "captions")):
        if not _is_scene(record):
            file.refuse(
                "a scene as tools/make_scenes.py writes it",
                record,
                number,
                "Delete the folder and write the scenes again.",
            )
        records.append(record)
    found = [record for record in records if record["split"] == split]
    if not found:
        names = sorted({record["split"] for record in records})
        raise InputError(
            "split",
            "name one of the scenes'",
            f"split={split}, and {path} has {', '.join(names)}",
            "Choose one of these.",
        )
    return found


def _is_scene(record):
    """Tells whether a record has all that `is_true` looks at."""
    try:
        for one in record["objects"]:
            named = all(isinstance(one[name], str) for name in _ATTRIBUTES)
            if not named or [*map(type, one["box"])] != [int] * 4:
                return False
        rows = {*range(len(record["objects"]))}
        for caption in record["captions"]:
            for claim in caption["claims"]:
                known = {*claim["objects"]} <= rows
                if not known or not isinstance(claim["kind"], str):
                    return False
    except (LookupError, TypeError):
        return False
    return isinstance(record["split"], str)


def is_true(claims, record, image_size):
    """Tells whether a caption is true of a scene, of which it need not be.

    "A red circle" is true of a scene with two of them, "two circles" is not
    true of one with three.

    Args:
        claims: list of dicts, what the caption claims.
        record: dict, the scene.
        image_size: width and height of the scene's image, in pixels.
    """
    for claim in claims:  # Most scenes lack an object: no need to try places.
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
    """Tells whether one claim holds, given which rows it speaks of."""
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
    """Returns the rows of the objects that have what a claim says of them."""
    said = [(name, claim[name]) for name in _ATTRIBUTES if name in claim]
    return {
        row
        for row, one in enumerate(record["objects"])
        if all(one[name] == value for name, value in said)
    }


def _stand(box, other, relation, image_size):
    """Tells whether two boxes stand to each other in a relation."""
    found = find_relation(box, other)
    if relation != "beside":
        return found == relation
    near = find_gap(box, other) <= NEAR * image_size
    return near and found in ("left", "right")


def truths(records, image_size, on_scene=lambda: None):
    """Asks each caption of some scenes of each of them.

    Args:
        records: list of dicts, the scenes.
        image_size: width and height of their images, in pixels.
        on_scene: called when all captions of a scene were asked.

    Returns:
        list with, for each caption of all scenes, the row of its own scene
        and the set of rows of all scenes that it is true of.
    """
    found = []
    for own, scene in enumerate(records):
        for caption in scene["captions"]:
            rows = {
                row
                for row, record in enumerate(records)
                if is_true(caption["claims"], record, image_size)
            }
            found.append((own, rows))
        on_scene()
    return found


def ceiling(captions, num_scenes):
    """Returns the best recalls that captions allow.

    From text to image all scenes that a caption is true of are equally good
    answers. From image to text the captions that are true of a scene are
    answers, those before others that are true of fewer scenes.

    Args:
        captions: what `truths` returned.
        num_scenes: number of the scenes.

    Returns:
        dict of fractions, `text_to_image/recall_at_1` and so on.
    """
    answers = [{} for _ in range(num_scenes)]  # How many fit -> [own, others].
    for own, scenes in captions:
        for row in scenes:
            counts = answers[row].setdefault(len(scenes), [0, 0])
            counts[row != own] += 1
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
    """Returns the chance that one of the first answers is right.

    Args:
        groups: list of `(right, wrong)` numbers of answers, the best answers
            first; those of one group are in any order.
        rank: how many answers count.
    """
    for right, wrong in groups:
        if rank <= right + wrong:
            # That all of `rank` answers drawn of this group are wrong:
            missed = math.comb(wrong, rank) / math.comb(right + wrong, rank)
            return 1 - missed
        if right:
            return 1.0
        rank -= wrong
    return 0.0
