"""What phrases with boxes hold: counts for each split."""

import numpy as np

from tbnets.data.description import spread
from tbnets.data.phrase_regions import PhraseRegions


def describe_phrases(phrases: PhraseRegions) -> dict:
    """Returns the counts of the phrases of one split.

    Args:
        phrases: the split.

    Returns:
        A dict in the order in which a reader wants to see it. A phrase of
        several types counts for each of them; chains are the things that
        phrases name; `median_box_area` is a share of the image, or absent
        where its size is not known.
    """
    count = phrases.num_phrases
    missing = {key: int(n.sum()) for key, n in phrases.left_out.items()}
    per_image = np.bincount(
        phrases.phrase_to_image, minlength=phrases.images.num_images
    )
    lengths = phrases.spans[:, 1] - phrases.spans[:, 0]
    counts = {
        "phrases": count + sum(missing.values()),
        "phrases_with_a_box": count,
        **{f"no_box_{key}": number for key, number in missing.items()},
        "chains_with_a_box": len(set(phrases.phrase_to_chain.tolist())),
        "distinct_phrases": len(set(phrases.phrase_to_text.tolist())),
        "boxed_phrases_per_image": spread(per_image, np.mean),
        "images_without_phrases": int((per_image == 0).sum()),
        "words_per_phrase": spread(lengths, np.median),
    }
    if count and (phrases.image_sizes > 0).all():
        boxes = phrases.fractions()
        sides = boxes[:, 2:] - boxes[:, :2]
        counts["median_box_area"] = float(np.median(sides.prod(axis=1)))
    for name, mask in phrases.type_masks().items():
        counts[f"type_{name}"] = int(mask.sum())
    return counts
