"""The arguments of the loss classes for the losses of the papers.

These are plain Python values. This module does not import TensorFlow.
"""

from typing import Any

CROSS_TERMS = ("image_to_text", "text_to_image")
TERMS = (*CROSS_TERMS, "text_to_text", "image_to_image")


def _weights(*weights):
    return dict(zip(TERMS, weights))


_WANG: dict[str, Any] = {
    "distance": "euclidean",
    "reduction": "mean_active",
    "negatives": "top_k",
}
_KIROS_2014: dict[str, Any] = {
    "margin": 0.2,
    "distance": "cosine",
    "reduction": "sum",
    "negatives": "all",
    "term_weights": _weights(1.0, 1.0),
}


PRESETS: dict[str, dict[str, Any]] = {
    # Wang 2016, Sec. 2.2 and 3.2: margin and K from the text, weights from the
    # "structure" rows of Table 1. Eq. 5 sums the hinges instead.
    "wang2016": {
        **_WANG,
        "margin": 0.1,
        "num_negatives": 50,
        "term_weights": _weights(1.0, 2.0, 0.2),
    },
    # Wang 2018, Sec. 3.2.1, 5.1 and 5.3. Eq. 6 sums the hinges instead.
    "wang2018": {
        **_WANG,
        "margin": 0.05,
        "num_negatives": 10,
        "term_weights": _weights(1.0, 1.5, 0.05),
    },
    # Wang 2018, Sec. 4.2 and Algorithm 1, phrase localization: an "image" is a
    # region. The paper gives no margin; 0.05 is from image-sentence matching.
    "wang2018_phrases": {
        **_WANG,
        "margin": 0.05,
        "num_negatives": 30,
        "term_weights": _weights(1.0, 4.0, 0.1, 0.1),
    },
    # Faghri 2018 (VSE++): only the hardest negative, summed.
    "vse++": _KIROS_2014 | {"negatives": "hardest"},
    # Kiros 2014: every negative of the batch, summed.
    "kiros2014": _KIROS_2014,
    # Vilalta 2017, Eq. 1, trains with the loss of Kiros 2014.
    "vilalta2017": _KIROS_2014,
    # Niu 2017, Eq. 9, uses the hinges of Kiros 2014 and gives no margin.
    "niu2017": _KIROS_2014,
}
"""Maps the name of a paper's loss to the arguments of `TripletLoss`.

Example:
    loss = tbnets.TripletLoss(**tbnets.PRESETS["vse++"])
"""
