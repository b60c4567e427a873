"""The public formats in which scenes are written.

Flickr30K Entities counts pixels from 1 and includes the last one, so the half
open box `[x_min, y_min, x_max, y_max]` with origin 0 is written as
`x_min + 1, y_min + 1, x_max, y_max`.

Coreference chains are numbered over the whole data set as there: a scene's
own chain numbers are added to one hundred times its id, and 0 stays 0.
"""

import pathlib
from xml.etree import ElementTree

from tbnets.data.scenes.phrases import BACKGROUND_CHAIN

CHAINS_PER_SCENE = 100
DATASET = "dataset.json"
RECORDS = "scenes.jsonl"
FOLDERS = {
    "images": ".jpg",
    "Sentences": ".txt",
    "Annotations": ".xml",
    "trees": ".txt",
}
README = pathlib.Path(__file__).with_name("README.txt")
"""What a folder of scenes says of itself."""


def karpathy_entry(described, image_row, first_sentence):
    """Returns one image of Karpathy's json.

    Args:
        described: `scenes.DescribedScene`.
        image_row: "imgid", the row of the image over all splits.
        first_sentence: "sentid" of its first caption.

    Returns:
        Dict ready for `json.dumps`.
    """
    sentences = [
        {"tokens": one.tokens, "raw": one.raw, "imgid": image_row, "sentid": n}
        for n, one in enumerate(described.captions, first_sentence)
    ]
    return {
        "sentids": [sentence["sentid"] for sentence in sentences],
        "imgid": image_row,
        "sentences": sentences,
        "split": described.split,
        "filename": f"{described.scene_id}.jpg",
    }


def sentences_text(described):
    """Returns the captions with marked phrases, one a line."""
    lines = [
        _marked(one.tree, described.scene_id) for one in described.captions
    ]
    return "".join(" ".join(pieces) + "\n" for pieces in lines)


def _marked(tree, scene_id):
    """Returns the words of a tree with its linked phrases in brackets."""
    if tree.chain is None:
        pieces = [_marked(child, scene_id) for child in tree.children]
        return sum(pieces, []) or [tree.text]
    number, kind = CHAINS_PER_SCENE * scene_id + tree.chain, "shapes"
    if tree.chain == 0:
        number, kind = 0, "notvisual"
    elif tree.chain == BACKGROUND_CHAIN:
        kind = "scene"
    words = " ".join(leaf.text for leaf in tree.leaves())
    return [f"[/EN#{number}/{kind} {words}]"]


def annotation_xml(described):
    """Returns the boxes of all chains that the captions speak of."""
    trees = [caption.tree for caption in described.captions]
    spoken = {phrase.chain for tree in trees for phrase in tree.phrases()}
    groups = described.groups.items()
    things = [
        ([row + 1, *(chain for rows, chain in groups if row in rows)], box)
        for row, box in enumerate(described.boxes)
    ]
    root = ElementTree.Element("annotation")
    file_name, side = f"{described.scene_id}.jpg", described.scene.image_size
    ElementTree.SubElement(root, "filename").text = file_name
    _add(root, "size", [("width", side), ("height", side), ("depth", 3)])
    first = CHAINS_PER_SCENE * described.scene_id
    for chains, box in [*things, ([BACKGROUND_CHAIN], None)]:
        names = [("name", first + chain) for chain in chains if chain in spoken]
        if names and box is None:
            _add(root, "object", [*names, ("scene", 1), ("nobndbox", 0)])
        elif names:
            edges = zip(("xmin", "ymin", "xmax", "ymax"), box + [1, 1, 0, 0])
            _add(_add(root, "object", names), "bndbox", edges)
    ElementTree.indent(root, "\t")
    return ElementTree.tostring(root, "unicode") + "\n"


def _add(parent, name, texts):
    """Adds an element that holds others, (name, text) each; returns it."""
    added = ElementTree.SubElement(parent, name)
    for inner, text in texts:
        ElementTree.SubElement(added, inner).text = str(text)
    return added


def scene_record(described):
    """Returns what was drawn and claimed, ready for `json.dumps`."""
    names = "shape", "colour", "size", "texture"
    objects = [
        {name: getattr(one, name) for name in names} | {"box": box.tolist()}
        for one, box in zip(described.scene.objects, described.boxes)
    ]
    captions = [
        {"raw": caption.raw, "rule": caption.rule, "claims": caption.claims}
        for caption in described.captions
    ]
    return {
        "id": str(described.scene_id),
        "split": described.split,
        "background": described.scene.background,
        "objects": objects,
        "captions": captions,
    }
