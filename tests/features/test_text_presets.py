"""Sentence encoders: their files, vectors and layers."""

import importlib.metadata
import json
import pathlib
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError, MissingPackageError
from tbnets.features import caption_features, text_presets
from tbnets.features.caption_encoder import CaptionReader
from tbnets.features.text_presets import MINILM, PresetFeatures
from tests import tiny_bert
from tests.refusals import refused
from tests.text.test_word_pieces import ODD

CAPTIONS = ["A dog runs, the red dog", "", "✓ 日本", "running dogs", "a " * 20]
KINDS = [("mean", True), ("mean", False), ("max", False), ("cls", True)]


@pytest.mark.parametrize(("pooling", "normalize"), KINDS)
def test_vectors_follow_the_definition(tmp_path, pooling, normalize):
    weights = tiny_bert.random_weights()
    tiny_bert.write_folder(tmp_path, weights, pooling, normalize)
    encoder = PresetFeatures.of(f"hub:{tmp_path}")
    vectors = encoder.transform(CAPTIONS)
    assert vectors.shape == (5, encoder.dim) == (5, tiny_bert.DIM)
    rows = encoder.opened.tokenizer.ragged(CAPTIONS).to_list()
    assert max(map(len, rows)) == 7
    for row, vector in zip(rows, vectors):
        wanted = tiny_bert.forward(weights, row, pooling, normalize)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)


def assert_stored_without_path(encoder, captions, store, folder):
    """Embeds captions into a store, and loads the encoder from it."""
    writer = caption_features.open_writer(store, encoder)
    caption_features.extract_captions(captions, encoder, writer)
    writer.finish()
    again = caption_features.load_encoder(store)
    assert again.digest() == encoder.digest()
    assert str(folder) not in json.dumps(caption_features.description(again))
    reader = CaptionReader(again, 200)
    vectors = reader(tf.constant(captions)).numpy()
    np.testing.assert_allclose(vectors, encoder.transform(captions), atol=1e-6)
    assert not reader.layer.trainable_weights


def test_stores_record_the_model_without_its_path(tmp_path):
    folder = tiny_bert.write_folder(tmp_path / "model")
    encoder = PresetFeatures.of(f"hub:{folder}")
    store = tmp_path / "store"
    assert_stored_without_path(encoder, CAPTIONS, store, folder)
    tiny_bert.write_folder(folder, tiny_bert.random_weights(1))
    with pytest.raises(InputError, match=str(folder)):
        caption_features.load_encoder(store).transform(["a"])


def test_half_precision_and_prefixed_weights_are_read(tmp_path):
    weights = {
        f"bert.{name}": array.astype("float16")
        for name, array in tiny_bert.random_weights().items()
    }
    weights["bert.embeddings.position_ids"] = np.arange(10)[None]
    tiny_bert.write_folder(tmp_path, weights)
    encoder = PresetFeatures.of(f"hub:{tmp_path}")
    weights = {k.removeprefix("bert."): v for k, v in weights.items()}
    [row] = encoder.opened.tokenizer.ragged(["a dog"]).to_list()
    wanted = tiny_bert.forward(weights, row)
    [vector] = encoder.transform(["a dog"])
    np.testing.assert_allclose(vector, wanted, atol=1e-5)


def change(file, **values):
    """Returns a function that changes values of a file of JSON."""

    def damage(folder):
        text = (folder / file).read_text()
        (folder / file).write_text(json.dumps(json.loads(text) | values))

    return damage


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def of_many_words(folder):
    """Claims an array larger than the file."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    old, new = b'"shape": [14, 8]', b'"shape":[10000000000000, 8]'
    header = content[8:].replace(old, new)
    length = int.from_bytes(content[:8], "little") + len(new) - len(old)
    path.write_bytes(length.to_bytes(8, "little") + header)


def without(folder):
    path = folder / "model.safetensors"
    weights = tiny_bert.random_weights()
    del weights["encoder.layer.1.output.dense.weight"]
    path.write_bytes(tiny_bert.safetensors(weights))


def with_dense_layer(folder):
    kinds = [{"type": f"x.{x}", "path": ""} for x in ("Transformer", "Dense")]
    (folder / "modules.json").write_text(json.dumps(kinds))


DAMAGES = [
    cut,
    of_many_words,
    without,
    with_dense_layer,
    lambda folder: (folder / "tokenizer.json").unlink(),
    change("config.json", model_type="distilbert"),
    change("config.json", position_embedding_type="relative_key"),
    change("1_Pooling/config.json", pooling_mode_max_tokens=True),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_and_other_models_are_refused(tmp_path, damage):
    tiny_bert.write_folder(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=str(tmp_path)) as caught:
        PresetFeatures.of(f"hub:{tmp_path}")
    assert caught.value.argument == "preset"


# The pip package of MiniLM, which tbnets reads but does not import.


class Package:
    """A stand-in for the installed package."""

    def __init__(self, folder):
        self.folder = folder

    def locate_file(self, file):
        return self.folder / file


@pytest.fixture
def zipped(tmp_path, monkeypatch):
    """Returns the path of a `model.zip` whose files are the published ones."""
    folder = tiny_bert.write_folder(tmp_path / "model")
    path = tmp_path / text_presets.ARCHIVE
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*.*"):
            archive.write(file, file.relative_to(folder))
    digest = PresetFeatures.of(f"hub:{folder}").preset["weights_sha256"]
    monkeypatch.setattr(text_presets, "WEIGHTS_SHA256", digest)
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: Package(tmp_path)
    )
    return path


def test_minilm_is_read_from_its_archive(zipped, tmp_path):
    encoder = PresetFeatures.of(MINILM)
    folder = PresetFeatures.of(f"hub:{tmp_path / 'model'}")
    np.testing.assert_array_equal(
        encoder.transform(CAPTIONS), folder.transform(CAPTIONS)
    )
    assert encoder.digest() == folder.digest()
    assert text_presets.files(MINILM) == {"model.zip": zipped}


def test_damaged_or_exchanged_archive_is_refused(zipped, monkeypatch):
    with monkeypatch.context() as patch, refused("preset"):
        patch.setattr(text_presets, "WEIGHTS_SHA256", "0")
        PresetFeatures.of(MINILM)
    content = zipped.read_bytes()
    zipped.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"model\.zip"):
        PresetFeatures.of(MINILM)


def test_share_counts_the_words_of_all_captions(zipped):
    captions = ["A dog runs", "the dog"]  # "runs" is not a whole piece.
    assert text_presets.minilm_share(captions) == 0.8
    assert text_presets.minilm_share([]) == 0
    assert text_presets.has_minilm()


def test_missing_package_raises_an_error_with_the_command(monkeypatch):
    def distribution(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    with pytest.raises(MissingPackageError, match=text_presets.INSTALL):
        PresetFeatures.of(MINILM)
    assert not text_presets.has_minilm()


@pytest.fixture(scope="module")
def minilm():
    """Returns the encoder of the installed package."""
    try:
        return PresetFeatures.of(MINILM)
    except MissingPackageError as error:
        pytest.skip(str(error))


def test_minilm_equals_the_definition(minilm):
    weights = text_presets.read_tensors(
        text_presets.read_file(MINILM, "model.safetensors")
    )
    captions = [*CAPTIONS[:4], "a lighthouse on a cliff"]
    rows = minilm.opened.tokenizer.ragged(captions).to_list()
    for row, vector in zip(rows, minilm.transform(captions)):
        wanted = tiny_bert.forward(weights, row, heads=12)
        np.testing.assert_allclose(vector, wanted, atol=1e-6)


@pytest.mark.real_data
def test_ids_of_minilm_equal_those_of_tokenizers(minilm, data_root):
    tokenizers = pytest.importorskip("tokenizers")
    path = pathlib.Path(data_root, "flickr8k/dataset_flickr8k.json")
    images = json.loads(path.read_text())["images"][:400]
    captions = [text["raw"] for image in images for text in image["sentences"]]
    other = tokenizers.Tokenizer.from_str(
        text_presets.read_file(MINILM, "tokenizer.json").decode()
    )
    other.no_padding()
    other.enable_truncation(256)
    captions += ODD
    wanted = [encoding.ids for encoding in other.encode_batch(captions)]
    tokenizer = minilm.opened.tokenizer
    assert tokenizer.ragged(captions).to_list() == wanted
