"""What flagfiles expect of their runs: the numbers of kept ones."""

import re

_GAP = r"[\s#]+"
_RECALLS = r"\d+\.\d/\d+\.\d/\d+\.\d"
_METRICS = {
    rf"{_RECALLS}(?={_GAP}image{_GAP}to{_GAP}text)": "test/image_to_text",
    rf"{_RECALLS}(?={_GAP}text{_GAP}to{_GAP}image)": "test/text_to_image",
    rf"(?<=test R@1/5/10 ){_RECALLS}(?!{_GAP}image)": "test/phrase_to_region",
    rf"(?<=dev ){_RECALLS}": "dev/phrase_to_region",
}
_NUMBERS = {
    r"(?<=mAP )\d+\.\d": "test/phrase_to_region/mean_average_precision",
    r"(?<=recall sum )\d+\.\d": "test/recall_sum",
    rf"\d+\.\d(?= % of{_GAP}the{_GAP}phrases)": (
        "test/correspondence_accuracy"
    ),
    r"\d+\.\d(?= % by chance)": "test/correspondence_chance",
    r"\d+\.\d(?= % at most)": "test/correspondence_upper_bound",
    r"(?<=recall sum \d{3}\.\d, dev )\d+\.\d": "dev/recall_sum",
}


def expecting(text, row):
    """Returns a flagfile whose "Expected:" has the numbers of its kept row.

    Args:
        text: of the flagfile.
        row: the `Row` of its configuration.
    """
    before, mark, rest = text.partition("# Expected:")
    told, source, rest = rest.partition("# Source:")
    for pattern, metric in _METRICS.items():
        keys = [f"{metric}/recall_at_{rank}" for rank in (1, 5, 10)]
        told = _with(told, pattern, keys, row)
    for pattern, metric in _NUMBERS.items():
        told = _with(told, pattern, [metric], row)
    return before + mark + told + source + rest


def _with(text, pattern, keys, row):
    if not row.values.keys() >= {*keys}:
        return text
    return re.sub(pattern, "/".join(row.values[key] for key in keys), text)
