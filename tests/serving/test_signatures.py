"""The table of signatures in docs/serving.md says what models really have."""

import itertools
import json
import pathlib
import re

import pytest

from tbnets.serving import zoo
from tbnets.serving.checksums import ANSWERS
from tbnets.serving.endpoints import region_endpoints, two_branch_endpoints
from tbnets.serving.export import describe_signature, is_batchable
from tbnets.serving.saved_files import METADATA_FILE
from tbnets.text.vocabulary import Tokenizer
from tests import tiny_localizer

PAGE = pathlib.Path(__file__).parents[2] / "docs/serving.md"
TENSOR = re.compile(r"`(\w+)` (string|float32|int32) `\[(.*?)\]`")
FEATURES, TREES = (
    "`text_features` float32 `[m, t]`",
    "`trees` int32 `[m, nodes, 6]`",
)
WORDS = {
    "texts": ("`captions` string `[m]`", FEATURES, TREES),
    "phrases": ("`phrases` string `[m]`", FEATURES, TREES),
    "images": (
        "`image_bytes` string `[n]`",
        "`image_features` float32 `[n, i]`",
    ),
}


def tensors(text):
    """Returns the tensors of a cell as a set of (name, dtype, rank)."""
    return {
        (name, dtype, len(sides.split(", ")) if sides else 0)
        for name, dtype, sides in TENSOR.findall(text)
    }


def tensors_of(described):
    """Returns the tensors that a model describes as `tensors` does."""
    return {
        (name, one["dtype"], len(one["shape"]))
        for name, one in described.items()
    }


def rows():
    """Yields each row: name, inputs, outputs, whether batched, models."""
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        match = re.match(r"`(\w+)`", cells[0])
        if line.startswith("| `") and match and len(cells) >= 4:
            inputs, outputs, batched = cells[1:4]
            models = cells[4].strip("| ") if cells[4:] else ""
            for some in alternatives(inputs):
                is_tree = "trees" in some
                joins = batched.startswith("yes") and not is_tree
                yield (
                    (match[1], tensors(some), tensors(outputs), joins),
                    set(filter(None, models.split(", "))),
                )


def alternatives(cell):
    """Returns a cell with all that its words, such as "texts", stand for."""
    parts = re.split(r", (?![^`]*\]`)", cell)
    found = [WORDS.get(one, (one,)) for one in parts]
    return [", ".join(some) for some in itertools.product(*found)]


ROWS = list(rows())


def entries(signatures):
    """Returns what a model has, in the form of the table."""
    return [
        (
            name,
            tensors_of(one["inputs"]),
            tensors_of(one["outputs"]),
            is_batchable(one),
        )
        for name, one in signatures.items()
        if name != "serving_default"
    ]


WHOLE = [
    name
    for name in zoo.names()
    if not (zoo.folder() / name / ANSWERS).is_file()  # See test_assembled.
]


@pytest.mark.parametrize("name", WHOLE)
def test_signatures_of_zoo_models_match_the_page(name):
    text = (zoo.folder() / name / "1" / METADATA_FILE).read_text()
    mine = entries(json.loads(text)["signatures"])
    rows_of_model = [row for row, models in ROWS if name in models]
    assert all(one in rows_of_model for one in mine)
    assert {row[0] for row in rows_of_model} == {one[0] for one in mine}


def in_the_table(described):
    """Tells whether signatures are as the table says."""
    table = [row for row, _ in ROWS]
    return all(entry in table for entry in entries(described))


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
