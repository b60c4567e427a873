"""Phrases with the boxes they name: what phrase localization learns from.

    phrases = read_phrases("flickr8k/entities", images)
    phrases.phrases[0], phrases.boxes[0]

`images` are the `CaptionedImages` of a split, or None for all there are. The
formats are shown in docs/phrases.md.
"""

import os

import numpy as np

from tbnets.data.captions import CaptionedImages
from tbnets.data.entities import read_entities
from tbnets.data.phrase_regions import PhraseRegions
from tbnets.data.phrase_tables import read_phrase_table


def read_phrases(
    path,
    images: CaptionedImages | None = None,
    problems: list | None = None,
) -> PhraseRegions:
    """Reads phrases and their boxes.

    Args:
        path: a folder with `Sentences` and `Annotations`, or a `.jsonl` file.
        images: the images wanted, in their order; None for all there are, by
            name. Their captions are not looked at: phrases stand in captions
            of their own file, which may come in another order.
        problems: None to raise at the first thing that is wrong; or a list
            to which a `Problem` is appended for each, while what is good is
            read: other captions, other boxes, other images.

    Returns:
        PhraseRegions: those that have a box; the others are counted in
        `left_out`. An image that can not be read is not in it.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: something is wrong and `problems` is None; names file and
            line.

    Source: Plummer et al. 2015, "Flickr30k Entities"; one box a phrase as in
        Wang et al. 2018, Sec. 4, note 2.
    """
    path = os.fspath(path)
    is_table = path.lower().endswith(".jsonl")
    read = read_phrase_table if is_table else read_entities
    names = None
    if images is not None:
        names = {
            key: images.file_name(row)
            for row, key in enumerate(images.image_ids)
        }
    split = "all" if images is None else images.split
    return _joined(read(path, names, problems), split, path)


def _joined(records, split, path):
    """Returns `PhraseRegions` of `phrase_markup.ImagePhrases`."""
    captions, caption_to_image, kept = [], [], []
    reasons = {key: None for record in records for key in record.left_out}
    for row, record in enumerate(records):
        boxes = {key: _around(some) for key, some in record.boxes.items()}
        for caption in record.captions:
            for place, phrase in enumerate(caption.phrases):
                if phrase.chain in boxes:
                    key = f"{record.image_id}#{caption.number}#{place}"
                    box = boxes[phrase.chain]
                    kept.append((len(captions), key, phrase, box))
            captions.append(caption.text)
            caption_to_image.append(row)
    ids = [record.image_id for record in records]
    names = [record.file_name for record in records]
    images = CaptionedImages(
        image_ids=ids,
        captions=captions,
        caption_to_image=np.array(caption_to_image, np.int64),
        split=split,
        path=path,
        file_names=() if names == ids else names,
    )
    return PhraseRegions(
        images=images,
        image_sizes=np.array([r.size for r in records]).reshape(-1, 2),
        phrases=[phrase.text for _, _, phrase, _ in kept],
        phrase_ids=[key for _, key, _, _ in kept],
        phrase_to_caption=[row for row, _, _, _ in kept],
        spans=np.reshape([(p.first, p.end) for _, _, p, _ in kept], (-1, 2)),
        types=[phrase.types for _, _, phrase, _ in kept],
        chains=[phrase.chain for _, _, phrase, _ in kept],
        boxes=np.reshape([box for _, _, _, box in kept], (-1, 4)),
        left_out={
            reason: np.array([r.left_out.get(reason, 0) for r in records])
            for reason in sorted(reasons)
        },
    )


def _around(boxes):
    """Returns the box around all boxes of one thing."""
    boxes = np.array(boxes, np.float64)
    return *boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)
