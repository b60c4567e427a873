"""The table of signatures in docs/serving.md agrees with exported models."""

import json
import pathlib
import re

import pytest

from tbnets.serving import zoo
from tbnets.serving.checksums import ANSWERS
from tbnets.serving.endpoints import region_endpoints, two_branch_endpoints
from tbnets.serving.export import describe_signature
from tbnets.serving.saved_files import METADATA_FILE
from tbnets.text.vocabulary import Tokenizer
from tests import tiny_localizer

PAGE = pathlib.Path(__file__).parents[2] / "docs/serving.md"
ROW = re.compile(r"^\| `(\w+)`[^|]*\|([^|]*\|[^|]*)\|[^|]*\|([^|]*)\|$", re.M)
TENSOR = re.compile(r"`(\w+)` (string|float32|int32) `\[(.*?)\]`")
OF_TEXTS = "`text_features` float32 `[m, t]`, `trees` int32 `[m, nodes, 6]`"
WORDS = {
    " texts": f"`captions` string `[m]`, {OF_TEXTS}",
    " phrases": f"`phrases` string `[m]`, {OF_TEXTS}",
    " images": "`image_bytes` string `[n]`, `image_features` float32 `[n, i]`",
}


def tensors(cells):
    """Returns the tensors of table cells as a set of (name, dtype, rank)."""
    for word, meaning in WORDS.items():
        cells = cells.replace(word, meaning)
    return {
        (name, dtype, len(sides.split(", ")) if sides else 0)
        for name, dtype, sides in TENSOR.findall(cells)
    }


def read_table():
    """Returns {signature: (its tensors, the zoo models that have it)}."""
    table = {}
    for name, cells, models in ROW.findall(PAGE.read_text("utf-8")):
        known, owners = table.setdefault(name, (set(), set()))
        known |= tensors(cells)
        owners |= {*re.findall(r"\w+", models)}
    return table


TABLE = read_table()


def in_the_table(signatures):
    """Returns whether the table has the tensors of described signatures."""
    return all(
        (key, tensor["dtype"], len(tensor["shape"])) in TABLE[name][0]
        for name, one in signatures.items()
        if name != "serving_default"
        for key, tensor in (*one["inputs"].items(), *one["outputs"].items())
    )


WHOLE = [
    name
    for name in zoo.names()
    if not (zoo.folder() / name / ANSWERS).is_file()  # See test_assembled.
]


@pytest.mark.parametrize("name", WHOLE)
def test_signatures_of_zoo_models_match_the_page(name):
    text = (zoo.folder() / name / "1" / METADATA_FILE).read_text()
    signatures = json.loads(text)["signatures"]
    assert in_the_table(signatures)
    listed = {row for row, (_, models) in TABLE.items() if name in models}
    assert listed == signatures.keys() - {"serving_default"}


class Learned(tiny_localizer.ColourNetwork):
    learned_similarity = True


def networks():
    """Yields the kinds of exports that the zoo has none of."""
    learned = Learned()
    learned.embed_text = learned.embed_images
    yield two_branch_endpoints(learned, None, image_shape=(3,), text_dim=3)
    yield region_endpoints(learned, None, region_dim=3, text_dim=3)
    tokenizer = Tokenizer(tiny_localizer.VOCABULARY)
    of_captions = tiny_localizer.ColourNetwork()
    yield two_branch_endpoints(of_captions, tokenizer, image_shape=(3,))


def test_signatures_of_other_exports_match_the_page():
    for endpoints in networks():
        assert in_the_table(
            {
                name: describe_signature(function.get_concrete_function())
                for name, function in endpoints.functions.items()
            }
        )
