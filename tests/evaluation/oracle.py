"""The definition of a rank, as plain loops."""

import math

import numpy as np


def score(x, y):
    """The exact inner product of two float32 rows, rounded to float32."""
    terms = [float(a) * float(b) for a, b in zip(x, y)]
    return np.float32(math.fsum(terms))


def rank(scores, positive):
    """1-based rank of the best positive; a tie with a negative is lost."""
    best = max(s for s, p in zip(scores, positive) if p)
    others = [s for s, p in zip(scores, positive) if not p]
    return 1 + sum(s >= best for s in others), best in others


def ranks(images, texts, caption_to_image):
    """Returns {direction: [(query, rank, tied), ...]}."""
    captions = list(enumerate(caption_to_image))
    result = {"image_to_text": [], "text_to_image": [], "text_to_text": []}
    for i, image in enumerate(images):
        positive = [row == i for _, row in captions]
        if any(positive):
            scores = [score(image, text) for text in texts]
            found = (i, *rank(scores, positive))
            result["image_to_text"].append(found)
    for j, row in captions:
        scores = [score(image, texts[j]) for image in images]
        found = (j, *rank(scores, [i == row for i in range(len(images))]))
        result["text_to_image"].append(found)
        others = [(k, other) for k, other in captions if k != j]
        positive = [other == row for _, other in others]
        if any(positive):
            scores = [score(texts[j], texts[k]) for k, _ in others]
            found = (j, *rank(scores, positive))
            result["text_to_text"].append(found)
    return result


def as_lists(ranks_by_direction):
    """Turns what `retrieval_ranks` returns into the same form."""
    return {
        direction: list(zip(*(column.tolist() for column in found)))
        for direction, found in ranks_by_direction.items()
    }
