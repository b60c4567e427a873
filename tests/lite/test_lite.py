"""LiteRT models answer as their networks."""

import shutil

import numpy as np
import PIL.Image
import pytest

import tbnets
from tbnets import lite
from tbnets.features import text_presets
from tbnets.features.caption_encoder import CaptionReader
from tbnets.layers import text_encoders
from tbnets.serving import checksums, inputs, litert
from tests import tiny_bert
from tests.refusals import refused
from tests.serving.test_litert import (
    CAPTIONS,
    VOCABULARY,
    endpoints_of,
    network_of,
    pictures,
)


@pytest.fixture(scope="module")
def network():
    return network_of("lstm")


@pytest.fixture(scope="module")
def folder(network, tmp_path_factory):
    """Returns a folder with a LiteRT model, `lite`."""
    folder, endpoints = tmp_path_factory.mktemp("models"), endpoints_of(network)
    litert.write_litert(network, endpoints, folder / "lite", "float32")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return lite.load(folder / "lite")


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for row, pixels in enumerate(pictures()):
        PIL.Image.fromarray(pixels).save(tmp_path / f"photos/{row}.png")
    return tmp_path / "photos"


def test_embeddings_are_those_of_the_network(network, model):
    texts = [*CAPTIONS, "", "nothing known", "the man's"]
    embeddings, images = model.embed_text(texts), pictures()
    assert embeddings.dtype == np.float32
    expected = network.embed_text(tbnets.Tokenizer(VOCABULARY)(texts))
    np.testing.assert_allclose(embeddings, expected, atol=1e-4)
    pixels = np.stack(images).astype(np.float32)
    rows = network.embed_images(pixels).numpy()
    np.testing.assert_allclose(model.embed_images(images), rows, atol=1e-4)
    lengths = np.linalg.norm(embeddings, axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)
    expected = rows @ expected.numpy()[: len(CAPTIONS)].T
    similarities = model.similarity(images, CAPTIONS)
    np.testing.assert_allclose(similarities, expected, atol=1e-4)
    assert model.embed_images([]).shape == model.embed_text([]).shape == (0, 8)


def of_pieces(kind, folder):
    """Returns a network with a sentence encoder, and its reader of captions."""
    preset = text_presets.PresetFeatures.of(
        f"hub:{tiny_bert.write_folder(folder)}"
    )
    pieces, words = CaptionReader(preset), tbnets.Tokenizer(VOCABULARY, 200)
    if kind == "trained":
        text, reader = preset.layer(), preset.tokenizer()
    else:
        text = text_encoders.FeaturesAndMean(VOCABULARY.size, pieces.dim)
        reader = inputs.FeaturesAndWordsReader(pieces, words)
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((8,)),
        tbnets.Branch((8,)),
        tbnets.SmallConvNet((4,)),
        text,
    )
    network.build({"images": (None, 16, 16, 3), "captions": (None, None)})
    return network, reader


@pytest.mark.parametrize("kind", ["trained", "beside words"])
def test_sentence_encoders_read_word_pieces(kind, tmp_path):
    pytest.importorskip("tokenizers")
    network, reader = of_pieces(kind, tmp_path / "bert")
    endpoints = endpoints_of(network, reader)
    litert.write_litert(network, endpoints, tmp_path / "lite", "float32")
    model = lite.load(tmp_path / "lite")
    texts = [*CAPTIONS, "", "Nothing known, the man's café", "running " * 99]
    np.testing.assert_allclose(
        model.embed_text(texts), network.embed_text(reader(texts)), atol=1e-4
    )
    assert bool(model.vocabulary) == (kind == "beside words")


def test_a_folder_is_searched_and_its_embeddings_are_saved(
    model, photos, tmp_path, monkeypatch
):
    (photos / "broken.jpg").write_bytes(b"no photo")
    [answers] = model.search(CAPTIONS[:1], str(photos), top=3)
    assert len(answers) == 3
    values = model.similarity([found.image for found in answers], CAPTIONS[:1])
    similarities = [found.similarity for found in answers]
    np.testing.assert_allclose(values[:, 0], similarities, rtol=1e-4)
    assert (tmp_path / "photos.tbnets").is_dir()
    [like] = model.search(images=photos, like=[photos / "2.png"], top=1)
    assert like[0][0] == str(photos / "2.png")
    monkeypatch.setattr(model, "try_images", None)  # All are saved.
    assert model.search(CAPTIONS[:1], str(photos), top=3) == [answers]


def test_unknown_words_are_warned_of(model):
    with pytest.warns(UserWarning, match="no word"):
        model.search(["perro"], pictures())
    assert model.vocabulary.split(["The man's Dog!"]) == [
        ["the", "man", "s", "dog"]
    ]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda m: m.embed_images([b"no photo"]), "images"),
        (lambda m: m.embed_images("a.jpg"), "images"),
        (lambda m: m.embed_text("a dog"), "texts"),
    ],
)
def test_bad_inputs_are_errors(model, call, argument):
    with refused(argument):
        call(model)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder / "lite", tmp_path / "copy")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (checksums.LITERT_FORMAT, "another"),
        ('"side": 16', '"side": 1000000000'),
        ('"preprocessing": {', '"preprocessing": 3, "other": {'),
        ('"embedding_dim": 8', '"embedding_dim": "8"'),
        ('"max_tokens": 200', '"max_tokens": true'),
        ('"text.tflite": "', '"other": "'),  # Among the checksums.
    ],
)
def test_changed_descriptions_are_errors(copy, before, after):
    text = (copy / checksums.MODEL).read_text()
    assert text.count(before) == 1
    (copy / checksums.MODEL).write_text(text.replace(before, after))
    with pytest.raises(ValueError):
        lite.load(copy)


@pytest.mark.parametrize("name", ["image.tflite", "vocabulary.txt"])
def test_damaged_files_are_errors(copy, name):
    with open(copy / name, "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=name):
        lite.load(copy)


def test_models_are_found_from_their_parent_folders(folder, tmp_path):
    assert lite.find(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        lite.load(tmp_path)
    (tmp_path / "litert").mkdir()
    (tmp_path / "litert/float16").symlink_to(folder / "lite")
    for path in (tmp_path, tmp_path / "litert", tmp_path / "litert/float16"):
        assert lite.find(path) == tmp_path / "litert/float16"
    assert lite.find(tmp_path / "litert/none") is None


def test_a_zoo_model_marks_the_doubtful_results_of_its_saved_model():
    model = lite.load("flickr8k_photos")
    row = model.embed_text(["a dog in the snow"])
    photos = np.concatenate([row, -row])
    [answers] = model.search(["a dog in the snow"], photos, top=2)
    assert [answer.is_doubtful for answer in answers] == [False, True]
