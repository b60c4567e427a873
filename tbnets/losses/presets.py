"""Settings of the triplet loss by the paper that used them."""

WANG2018 = {
    "margin": 0.05,
    "num_negatives": 10,
    "distance": "euclidean",
    "reduction": "mean_active",
    "negatives": "top_k",
    "term_weights": {
        "image_to_text": 1.0,
        "text_to_image": 1.5,
        "text_to_text": 0.05,
    },
}
KIROS2014 = {
    "margin": 0.2,
    "distance": "cosine",
    "reduction": "sum",
    "negatives": "all",
    "term_weights": {"image_to_text": 1.0, "text_to_image": 1.0},
}
PRESETS = {
    "wang2018": WANG2018,
    "kiros2014": KIROS2014,
    "vilalta2017": KIROS2014,
}
