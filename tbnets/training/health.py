"""Measures whether embeddings use their space, and names a collapse."""

import numpy as np

COLLAPSED_COSINE = 0.95
PLATEAU_ACTIVE = 0.99
PLATEAU_TOLERANCE = 0.05
# What judges pairs by guessing, and what to do about it.
GUESSED = {
    "train/pair_accuracy": (
        0.52,
        "the pairs are judged right about as often as by tossing a coin. Give "
        "it some epochs, another --learning_rate or fewer --num_candidates",
    ),
    "train/ranked_first": (
        0.0,
        "no matching pair is found better than the wrong ones beside it: the "
        "network says the same of all. Try a lower --learning_rate",
    ),
}


def embedding_health(embeddings):
    """Describes how a set of unit vectors fills its space.

    Args:
        embeddings: float `[n, dim]`, unit vectors.

    Returns:
        dict of floats: `mean_cosine`, of all pairs of different rows (0 for
        directions all over the space, 1 for a collapse), and
        `dimension_spread`, the mean over dimensions of the standard
        deviation times sqrt(dim) (1 when all dimensions are used alike, 0
        for a collapse).
    """
    vectors = np.asarray(embeddings, np.float64)
    n, dim = vectors.shape
    if n < 2:
        return {"mean_cosine": 0.0, "dimension_spread": 0.0}
    # sum over i != j of <v_i, v_j> = |sum v|^2 - sum |v_i|^2
    total = vectors.sum(axis=0)
    pairs = total @ total - np.einsum("ij,ij->", vectors, vectors)
    spread = vectors.std(axis=0).mean() * np.sqrt(dim)
    return {
        "mean_cosine": float(pairs / (n * (n - 1))),
        "dimension_spread": float(spread),
    }


def diagnose(logs, margin, reduction):
    """Returns a plain warning when training has collapsed, else None.

    A network that judges pairs is warned of when it says the same of all;
    its embeddings may lie as they like.

    Args:
        logs: an epoch's scalars, with `train/..._loss`, `train/..._active`
            and `health/.../mean_cosine`, or with `train/pair_accuracy` or
            `train/ranked_first`.
        margin: of the loss.
        reduction: of the loss; the plateau shows under the means only.
    """
    for key, (guessing, advice) in GUESSED.items():
        if key in logs:
            return None if logs[key] > guessing else advice
    cosines = [logs[key] for key in logs if key.endswith("/mean_cosine")]
    if max(cosines, default=0) > COLLAPSED_COSINE:
        return (
            "the embeddings have collapsed: their mean pairwise cosine is "
            f"above {COLLAPSED_COSINE}. Try --negatives=all, more "
            "--num_negatives, or a lower --learning_rate"
        )
    terms = ("image_to_text", "text_to_image")
    losses = [logs.get(f"train/{term}_loss") for term in terms]
    active = [logs.get(f"train/{term}_active", 0.0) for term in terms]
    if reduction == "sum" or None in losses or min(active) < PLATEAU_ACTIVE:
        return None
    if any(abs(x - margin) >= PLATEAU_TOLERANCE * margin for x in losses):
        return None
    return (
        f"the loss sits at the margin plateau ({margin:g}): nothing is told "
        "apart. Try a lower --learning_rate, or --negatives=all at first"
    )
