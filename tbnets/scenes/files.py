"""The public formats in which scenes are written.

Flickr30K Entities counts pixels from 1 and includes the last one, so the half
open box `[x_min, y_min, x_max, y_max]` with origin 0 is written as
`x_min + 1, y_min + 1, x_max, y_max`.

Coreference chains are numbered over the whole data set as there: a scene's
own chain numbers are added to one hundred times its id, and 0 stays 0.
"""

import pathlib

from tbnets.scenes.phrases import BACKGROUND_CHAIN

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
        {
            "tokens": caption.tokens,
            "raw": caption.raw,
            "imgid": image_row,
            "sentid": first_sentence + number,
        }
        for number, caption in enumerate(described.captions)
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
    lines = []
    for caption in described.captions:
        pieces = _marked(caption.tree, described.scene_id)
        lines.append(" ".join(pieces) + "\n")
    return "".join(lines)


def trees_text(described):
    """Returns the gold trees of the captions, one a line."""
    return "".join(
        caption.tree.bracketed() + "\n" for caption in described.captions
    )


def annotation_xml(described):
    """Returns the boxes of all chains that the captions speak of."""
    size = described.scene.image_size
    spoken = {
        phrase.chain
        for caption in described.captions
        for phrase in caption.tree.phrases()
    }
    parts = [
        "<annotation>\n"
        f"\t<filename>{described.scene_id}.jpg</filename>\n"
        f"\t<size>\n\t\t<width>{size}</width>\n\t\t<height>{size}</height>\n"
        "\t\t<depth>3</depth>\n\t</size>\n"
    ]
    for row, box in enumerate(described.boxes):
        chains = [row + 1] + [
            chain for rows, chain in described.groups.items() if row in rows
        ]
        names = _names([one for one in chains if one in spoken], described)
        if names:
            parts.append(f"\t<object>\n{names}{_bndbox(box)}\t</object>\n")
    if BACKGROUND_CHAIN in spoken:
        names = _names([BACKGROUND_CHAIN], described)
        parts.append(
            f"\t<object>\n{names}\t\t<scene>1</scene>\n"
            "\t\t<nobndbox>0</nobndbox>\n\t</object>\n"
        )
    return "".join(parts) + "</annotation>\n"


def scene_record(described):
    """Returns what was drawn and claimed, ready for `json.dumps`."""
    objects = [
        {
            "shape": one.shape,
            "colour": one.colour,
            "size": one.size,
            "texture": one.texture,
            "box": [int(edge) for edge in box],
        }
        for one, box in zip(described.scene.objects, described.boxes)
    ]
    captions = [
        {
            "raw": caption.raw,
            "rule": caption.rule,
            "claims": list(caption.claims),
        }
        for caption in described.captions
    ]
    return {
        "id": str(described.scene_id),
        "split": described.split,
        "background": described.scene.background,
        "objects": objects,
        "captions": captions,
    }


def _marked(tree, scene_id):
    """Returns the words of a tree with its linked phrases in brackets."""
    if tree.chain is not None:
        if tree.chain == 0:
            chain, kind = 0, "notvisual"
        else:
            chain = CHAINS_PER_SCENE * scene_id + tree.chain
            on_background = tree.chain == BACKGROUND_CHAIN
            kind = "scene" if on_background else "shapes"
        words = " ".join(leaf.text for leaf in tree.leaves())
        return [f"[/EN#{chain}/{kind} {words}]"]
    if not tree.children:
        return [tree.text]
    return [
        piece for child in tree.children for piece in _marked(child, scene_id)
    ]


def _names(chains, described):
    first = CHAINS_PER_SCENE * described.scene_id
    return "".join(f"\t\t<name>{first + chain}</name>\n" for chain in chains)


def _bndbox(box):
    x_min, y_min, x_max, y_max = box
    return (
        f"\t\t<bndbox>\n\t\t\t<xmin>{x_min + 1}</xmin>\n"
        f"\t\t\t<ymin>{y_min + 1}</ymin>\n\t\t\t<xmax>{x_max}</xmax>\n"
        f"\t\t\t<ymax>{y_max}</ymax>\n\t\t</bndbox>\n"
    )
