"""The losses of the papers, as arguments of their classes.

Plain numbers: the command line reads them before TensorFlow is there. A term
without a weight is not part of the loss. `num_negatives` comes only with the
negatives "top_k".
"""

from typing import Any

from tbnets.errors import check_choice

TERMS = ("image_to_text", "text_to_image", "text_to_text", "image_to_image")


def _weights(*weights):
    """Returns the weights of the first terms by their names."""
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


class _Presets(dict):
    """Arguments by the name of a loss; a name that is none is told so."""

    def __missing__(self, name):
        check_choice("loss", name, self)


PRESETS: dict[str, dict[str, Any]] = _Presets()
"""Arguments of `TripletLoss`, by the name of a paper's loss.

Example:
    loss = tbnets.TripletLoss(**tbnets.PRESETS["vse++"])
"""
PRESETS |= {
    # Wang 2016, Sec. 2.2 and 3.2: margin and K of the text, weights of the
    # "structure" rows of Table 1. Eq. 5 sums; see `TripletLoss`.
    "wang2016": {
        **_WANG,
        "margin": 0.1,
        "num_negatives": 50,
        "term_weights": _weights(1.0, 2.0, 0.2),
    },
    # Wang 2018, Sec. 3.2.1, 5.1 and 5.3. Eq. 6 sums; see `TripletLoss`.
    "wang2018": {
        **_WANG,
        "margin": 0.05,
        "num_negatives": 10,
        "term_weights": _weights(1.0, 1.5, 0.05),
    },
    # Wang 2018, Sec. 4.2 and Algorithm 1, phrase localization: an "image" is a
    # region. The margin is that of image-sentence matching, none is told.
    "wang2018_phrases": {
        **_WANG,
        "margin": 0.05,
        "num_negatives": 30,
        "term_weights": _weights(1.0, 4.0, 0.1, 0.1),
    },
    # Faghri 2018 (VSE++): the one hardest negative, summed.
    "vse++": _KIROS_2014 | {"negatives": "hardest"},
    # Kiros 2014: every negative of the batch, summed.
    "kiros2014": _KIROS_2014,
    # Vilalta 2017, Eq. 1, trains with the loss of Kiros 2014.
    "vilalta2017": _KIROS_2014,
    # Niu 2017, Eq. 9: the same hinges. The margin is not told.
    "niu2017": _KIROS_2014,
}

INFONCE: dict[str, Any] = {
    # Wu 2018 and CLIP's first temperature (Radford 2021, Sec. 2.4), whose two
    # directions are averaged.
    "temperature": 0.07,
    "term_weights": _weights(0.5, 0.5),
}
"""Arguments of `InfoNCELoss`."""
LOSSES: dict[str, dict[str, Any]] = _Presets(PRESETS | {"infonce": INFONCE})
"""Arguments by the name of a loss, whatever its class."""
