"""The text side of presets: ids, vectors, features, a layer."""

import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.extras.hub import presets, texts
from tbnets.extras.hub.texts import HubTextEncoder, HubTokenizer
from tbnets.features import caption_features
from tbnets.features.cnn_weights import weights_sha256
from tbnets.features.text_presets import PresetFeatures
from tbnets.serving.saved_files import check_ops
from tests.features.test_text_presets import assert_stored_without_path

KINDS = ("clip", "siglip", "bert", "t5")
CAPTIONS = [
    "A dog runs in the red ball, 20 men",
    "",
    "✓ 日本",
    "dog " * 30,
    "a MAN",
]


@pytest.fixture(scope="module")
def opened(hub_presets):
    """Returns kind -> the fitted `PresetFeatures`."""
    return {
        kind: PresetFeatures.of(f"hub:{hub_presets[kind]}") for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_change_text_vectors(opened, kind):
    encoder = opened[kind]
    tokenizer, embed = encoder.opened.tokenizer, encoder.opened.embed
    ids = tokenizer(CAPTIONS)
    assert int(tf.reduce_min(ids[:, 0])) > 0  # Something is read of each.
    vectors = embed(ids).numpy()
    assert vectors.shape == (5, encoder.dim) and np.isfinite(vectors).all()
    wider = embed(tf.pad(ids, [[0, 0], [0, 7]])).numpy()
    np.testing.assert_allclose(wider, vectors, atol=1e-5)
    for row in (0, 1, 3):
        alone = encoder.transform([CAPTIONS[row]])[0]
        np.testing.assert_allclose(alone, vectors[row], atol=1e-5)
    check_ops("captions", tokenizer.graph_def())


@pytest.mark.parametrize(
    ("kind", "name"), [("clip", "CLIP"), ("siglip", "SigLIP")]
)
def test_text_vectors_of_pair_presets_equal_keras_hub(opened, kind, name):
    import keras_hub

    preset = opened[kind].opened.preset
    own = getattr(keras_hub.models, f"{name}Preprocessor")
    own = own.from_preset(str(preset.source))
    own.image_converter = None
    ids = own({"prompts": CAPTIONS, "images": None})["token_ids"]
    wanted = preset.backbone.get_text_embeddings(np.asarray(ids))
    found = opened[kind].transform(CAPTIONS)
    np.testing.assert_allclose(found, np.asarray(wanted), atol=1e-5)


def test_text_vectors_of_text_presets_equal_keras_hub(opened):
    import keras_hub

    preset = opened["bert"].opened.preset
    own = keras_hub.models.BertTextClassifierPreprocessor(
        preset.tokenizer, sequence_length=20
    )
    made = preset.backbone(own(CAPTIONS))
    found = opened["bert"].transform(CAPTIONS)
    np.testing.assert_allclose(found, made["pooled_output"], atol=1e-5)

    preset = opened["t5"].opened.preset
    ids = preset.tokenizer([CAPTIONS[0]])[0] + [preset.tokenizer.end_token_id]
    ids, given = np.array([ids]), {}
    for side in ("encoder", "decoder"):
        given[f"{side}_token_ids"] = ids
        given[f"{side}_padding_mask"] = np.ones_like(ids)
    states = preset.backbone(given)["encoder_sequence_output"]
    found = opened["t5"].transform(CAPTIONS[:1])
    np.testing.assert_allclose(found, np.mean(states, axis=1), atol=1e-5)


@pytest.fixture(scope="module")
def embedder(hub_presets, tmp_path_factory):
    """Returns (folder, `PresetFeatures`) of a BERT with a pooling."""
    folder = tmp_path_factory.mktemp("embedder") / "bert"
    shutil.copytree(hub_presets["bert"], folder)
    registered = "keras_hub>BertTextEmbedder"
    task = {"registered_name": registered, "config": {"pooling_mode": "max"}}
    (folder / "task.json").write_text(json.dumps(task))
    return folder, PresetFeatures.of(f"hub:{folder}")


def test_text_embedders_use_their_configured_pooling(opened, embedder):
    _, encoder = embedder
    side = encoder.opened.side
    ids = encoder.opened.tokenizer(CAPTIONS[:1])
    given = {"token_ids": ids - 1, "padding_mask": tf.ones_like(ids)}
    states = side.network({**given, "segment_ids": tf.zeros_like(ids)})
    found = encoder.transform(CAPTIONS[:1])
    np.testing.assert_allclose(found, np.max(states, axis=1), atol=1e-5)
    assert encoder.digest() != opened["bert"].digest()
    for name in ("preset", "config_sha256", "tokenizer_sha256"):
        assert encoder.preset[name] == opened["bert"].preset[name]


def test_stores_record_the_preset_without_its_path(embedder, tmp_path):
    folder, encoder = embedder
    store = tmp_path / "store"
    assert_stored_without_path(encoder, CAPTIONS, store, folder)
    # The preset has other words, or other weights.
    expected = weights_sha256(encoder.opened.side.network)
    assert encoder.preset["weights_sha256"] == expected
    words = folder / "assets" / "tokenizer" / "vocabulary.txt"
    words.write_text(words.read_text() + "cat\n")
    with pytest.raises(InputError, match=str(folder)):
        caption_features.load_encoder(store).transform(["a"])


def test_captions_are_truncated_at_the_limit_of_the_preset(opened):
    preset = opened["clip"].opened.preset
    tokenizer = texts.HubTokenizer(preset)
    ids = tokenizer(["a " * 20, "a"]).numpy()
    assert ids.shape == (2, 12) == (2, tokenizer.max_tokens)
    end = preset.tokenizer.end_token_id + 1
    assert ids[:, -1].tolist() == [end, 0] and ids[1, 2] == end


def test_saved_clip_tokenizers_have_no_mutable_tables(hub_presets, tmp_path):
    preset = presets.open_preset(hub_presets["clip"], "text", weights=False)
    tf.function(preset.tokenizer.token_to_id)("a")  # Makes its tables.
    tokenizer = texts.HubTokenizer(preset)
    spec = tf.TensorSpec([None], tf.string)
    read = tf.function(tokenizer.__call__, input_signature=[spec])
    tf.saved_model.save(tokenizer, str(tmp_path), {"read": read})
    assert (
        b"LookupTableExport" not in (tmp_path / "saved_model.pb").read_bytes()
    )


THREE = ["a dog runs", "", "the red ball in ✓"]


@pytest.fixture(scope="module")
def preset(opened):
    return opened["bert"].opened.preset


@pytest.fixture(scope="module")
def ids(preset):
    return HubTokenizer(preset)(THREE)


@pytest.fixture(scope="module")
def layer(preset):
    return HubTextEncoder.of(preset)


def test_gradients_of_text_encoders_are_deterministic(layer, ids):
    @functools.partial(tf.function, autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True) ** 2)
        return [
            tf.convert_to_tensor(one)
            for one in tape.gradient(loss, layer.trainable_variables)
            if one is not None
        ]

    first, second = gradients(), gradients()
    assert sum(float(tf.reduce_sum(abs(one))) for one in first) > 0
    for one, other in zip(first, second):
        np.testing.assert_array_equal(one, other)
