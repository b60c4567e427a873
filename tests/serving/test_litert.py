"""Networks that are converted for LiteRT keep their embeddings."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.data.images import decode_images
from tbnets.data.store.reader import file_sha256
from tbnets.serving import litert
from tbnets.serving.endpoints import (
    region_endpoints,
    two_branch_endpoints,
)
from tbnets.serving.inputs import TreeReader
from tests.refusals import refused

SIDE = 16
CAPTIONS = ["a red dog runs", "two cats sit on a mat", "the man's blue hat"]
VOCABULARY = tbnets.Vocabulary.build(CAPTIONS)


def network_of(kind, model=tbnets.EmbeddingNetwork, **options):
    """Returns a network of small pictures and captions, with random weights."""
    size = VOCABULARY.size
    text = tbnets.MeanOfWords(size, 8)
    if kind != "mean":
        text = tbnets.RecurrentEncoder(size, kind, 8, 6)
    network = model(
        image_branch=tbnets.Branch((8,)),
        text_branch=tbnets.Branch((8,)),
        image_encoder=tbnets.SmallConvNet((4, 6)),
        text_encoder=text,
        **options,
    )
    network.build({"images": (None, SIDE, SIDE, 3), "captions": (None, None)})
    return network


def endpoints_of(network, reader=None, photos=True):
    return two_branch_endpoints(
        network,
        reader or tbnets.Tokenizer(VOCABULARY),
        image_shape=(SIDE, SIDE, 3),
        read_photos=(lambda x: decode_images(x, SIDE)) if photos else None,
    )


def pictures(count=4):
    rng = np.random.default_rng(3)
    return [*rng.integers(0, 256, (count, SIDE, SIDE, 3)).astype(np.uint8)]


@pytest.fixture(scope="module")
def network():
    return network_of("mean")


def test_litert_outputs_equal_the_network(network, tmp_path):
    path, cosines = litert.write_litert(
        network, endpoints_of(network), tmp_path / "a", "int8", pictures()
    )
    assert min(cosines.values()) >= 0.95
    record = json.loads((path / litert.MODEL).read_text())
    assert record["preprocessing"]["side"] == SIDE
    assert record["embedding_dim"] == 8 and record["kind"] == "int8"
    files = {file.name for file in path.iterdir()} - {litert.MODEL}
    assert record["sha256"] == {x: file_sha256(path / x) for x in files}
    image = litert.open_interpreter((path / litert.IMAGE).read_bytes())
    assert np.int8 in {one["dtype"] for one in image.get_tensor_details()}
    run = litert.open_interpreter((path / litert.TEXT).read_bytes())
    run = run.get_signature_runner(record["signature_key"])
    for ids in [[2]], [[3, 4, 5, 6, 2, 2, 1]], [[2, 0, 0]]:
        ids = np.array(ids, np.int32)
        found = run(token_ids=ids)["embeddings"]
        expected = network.embed_text(tf.constant(ids))
        assert (found * expected.numpy()).sum() >= 0.95


def unconvertible(kind):
    """Returns the endpoints of a network that cannot be converted."""
    if kind == "learned":
        head = tbnets.PairHead((4, 3))
        return endpoints_of(
            network_of("mean", tbnets.SimilarityNetwork, head=head)
        )
    network = network_of("mean")
    if kind == "features":
        return endpoints_of(network, photos=False)
    if kind == "trees":
        return endpoints_of(network, TreeReader(VOCABULARY))
    return region_endpoints(network, tbnets.Tokenizer(VOCABULARY), region_dim=5)


@pytest.mark.parametrize("kind", ["learned", "features", "trees", "boxes"])
def test_unsupported_networks_raise_an_error(kind):
    with refused("litert"):
        litert.check_convertible(unconvertible(kind))


@pytest.mark.parametrize(
    "pairs", [[(224, 1), (260, 2)], [(224, tbnets.decode_images)]]
)
def test_several_image_sizes_and_presets_raise_an_error(pairs):
    network = types.SimpleNamespace(input_shapes={"images": (None, 5)})
    parts = [
        types.SimpleNamespace(photo_size=size, resizer=resizer)
        for size, resizer in pairs
    ]
    reader = types.SimpleNamespace(read=types.SimpleNamespace(parts=parts))
    with refused("litert"):
        litert.pixels_of(network, reader)
