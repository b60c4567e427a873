"""Measures whether embeddings use their space, and names a collapse."""

import numpy as np

from tbnets.evaluation.tables import recall_cutoffs

COLLAPSED_COSINE = 0.95
PLATEAU_ACTIVE = 0.99
PLATEAU_TOLERANCE = 0.05
PLATEAU_EPOCHS = 3
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


def diagnose(history, margin, reduction):
    """Returns a plain warning when training has collapsed, else None.

    A network that judges pairs is warned of when it says the same of all;
    its embeddings may lie as they like. A loss at the margin alone tells
    little: the mean of the hinges above 0 lies there too while the hardest
    negatives are as close as the positives, and all others are not.

    Args:
        history: an epoch's scalars a row, from the first epoch on, with
            `train/..._loss`, `train/..._active`, `health/.../mean_cosine` and
            `dev/...` metrics, or with `train/pair_accuracy` or
            `train/ranked_first`.
        margin: of the loss; None of one without.
        reduction: of the loss; the plateau shows under the means only.
    """
    logs = history[-1]
    for key, (guessing, advice) in GUESSED.items():
        if key in logs:
            return None if logs[key] > guessing else advice
    cosines = [logs[key] for key in logs if key.endswith("/mean_cosine")]
    if max(cosines, default=0) > COLLAPSED_COSINE:
        of_hinges = "--negatives=all, more --num_negatives, or "
        more = "" if margin is None else of_hinges
        return (
            "the embeddings have collapsed: their mean pairwise cosine is "
            f"above {COLLAPSED_COSINE}. Try {more}a lower --learning_rate"
        )
    recent = history[-PLATEAU_EPOCHS:]
    has_plateau = margin is not None and reduction != "sum"
    if not has_plateau or len(recent) < PLATEAU_EPOCHS:
        return None
    if not all(_lies_at(row, margin) for row in recent) or _tells(history):
        return None
    return (
        f"the loss sits at the margin plateau ({margin:g}) and the dev split "
        "is ranked by chance: nothing is told apart. Try a lower "
        "--learning_rate, or --negatives=all at first"
    )


def _lies_at(logs, margin):
    """Tells whether all triplets are wrong, by the margin on average."""
    terms = ("image_to_text", "text_to_image")
    losses = [logs.get(f"train/{term}_loss") for term in terms]
    active = [logs.get(f"train/{term}_active", 0.0) for term in terms]
    if None in losses or min(active) < PLATEAU_ACTIVE:
        return False
    return all(abs(x - margin) < PLATEAU_TOLERANCE * margin for x in losses)


def _tells(history):
    """Tells whether one of the last epochs ranks the dev split with a reason.

    Images and captions better than by chance, of which k / images are among
    the first k; phrases, whose chance nobody knows, better than at first.
    """
    recent = history[-PLATEAU_EPOCHS:]
    images = history[0].get("dev/image_to_text/num_queries")
    if not images:
        name = "dev/phrase_to_region/recall_at_1"
        first, *last = (row.get(name, 0) for row in [history[0], *recent])
        return max(last) > first
    cutoffs = recall_cutoffs(history[0])
    chance = 200 * sum(min(1, k / images) for k in cutoffs)
    least = min(1.5 * chance, (chance + 200 * len(cutoffs)) / 2)
    return max(row["dev/recall_sum"] for row in recent) > least
