"""Presets of Keras Hub small enough for tests: 16 pixels, one layer.

Each is what `save_to_preset` writes of a backbone with random weights and of
what prepares its inputs, as published ones are.
"""

import functools
import pathlib

import keras
import pytest

from tbnets.extras.hub.texts import byte_letters

SIDE = 16
VIT = {
    "patch_size": 4,
    "hidden_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 24,
    "image_shape": (SIDE, SIDE, 3),
}
TEXT = {
    "vocabulary_size": 40,
    "embedding_dim": 16,
    "hidden_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 24,
    "max_sequence_length": 12,
}
CONVERTER = {
    "image_size": (SIDE, SIDE),
    "scale": [0.015, 0.016, 0.017],
    "offset": [-1.7, -1.8, -1.9],
    "interpolation": "bicubic",
    "antialias": True,
}
WORDS = ("a", "dog", "runs", "man", "red", "ball", "the", "in")


def clip_words():
    """Returns (vocabulary, merges) of CLIP: letters and `WORDS`."""
    letters = byte_letters()
    names = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges = []
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges.append(" ".join(parts[:2]))
            parts = ["".join(parts[:2]), *parts[2:]]
        names += [name.replace(" ", "") for name in merges]
    # The end is the highest, by which CLIP finds it.
    names = [*dict.fromkeys(names), "<|startoftext|>", "<|endoftext|>"]
    return {name: row for row, name in enumerate(names)}, [
        *dict.fromkeys(merges)
    ]


def save_clip(folder):
    """Saves a CLIP."""
    hub = pytest.importorskip("keras_hub")
    models, (words, merges) = hub.models, clip_words()
    backbone = models.CLIPBackbone(
        models.CLIPVisionEncoder(**VIT, name="vision"),
        models.CLIPTextEncoder(
            **{**TEXT, "vocabulary_size": len(words)}, name="text"
        ),
        projection_dim=6,
    )
    tokenizer = models.CLIPTokenizer(vocabulary=words, merges=merges)
    converter = hub.layers.CLIPImageConverter(**CONVERTER)
    return _save(
        folder,
        backbone,
        models.CLIPPreprocessor(tokenizer, converter, sequence_length=12),
    )


def save_siglip(folder):
    """Saves a SigLIP; its words are letters of SentencePiece."""
    hub = pytest.importorskip("keras_hub")
    models = hub.models
    tokenizer = models.SigLIPTokenizer(proto=_sentence_pieces())
    backbone = models.SigLIPBackbone(
        models.SigLIPVisionEncoder(**VIT, name="vision"),
        models.SigLIPTextEncoder(**TEXT, name="text"),
    )
    converter = hub.layers.SigLIPImageConverter(
        **{**CONVERTER, "crop_to_aspect_ratio": False}
    )
    return _save(
        folder,
        backbone,
        models.SigLIPPreprocessor(tokenizer, converter, sequence_length=12),
    )


def _sentence_pieces(**more):
    """Returns a trained model of pieces, as bytes."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 3),
        model_writer=model,
        vocab_size=30,
        model_type="BPE",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **more,
    )
    return model.getvalue()


def _reader(**more):
    """Returns the sizes of a network that reads texts alone."""
    return {
        **{"num_layers": 1, "num_heads": 2, "hidden_dim": 8},
        **{"intermediate_dim": 12, "max_sequence_length": 20},
        **more,
    }


def save_bert(folder):
    """Saves a BERT."""
    models = pytest.importorskip("keras_hub").models
    words = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
    words += [*WORDS, "##s", "2", "##0"]
    backbone = models.BertBackbone(**_reader(vocabulary_size=len(words)))
    return _save(folder, backbone, models.BertTokenizer(words, lowercase=True))


def save_t5(folder):
    """Saves a T5, of which the encoder reads texts; it takes any length."""
    models = pytest.importorskip("keras_hub").models
    sizes = _reader(vocabulary_size=30)
    del sizes["max_sequence_length"]
    tokenizer = models.T5Tokenizer(_sentence_pieces(pad_piece="<pad>"))
    return _save(folder, models.T5Backbone(**sizes), tokenizer)


def save_dinov2(folder):
    """Saves a DINOv2 with registers, for any size of images."""
    hub = pytest.importorskip("keras_hub")
    backbone = hub.models.DINOV2Backbone(
        **VIT, num_register_tokens=2, position_embedding_shape=(24, 24, 3)
    )
    return _save(folder, backbone, hub.layers.DINOV2ImageConverter(**CONVERTER))


def save_vit(folder):
    """Saves a ViT."""
    hub = pytest.importorskip("keras_hub")
    sizes = {k: v for k, v in VIT.items() if k != "intermediate_dim"}
    backbone = hub.models.ViTBackbone(**sizes, mlp_dim=24)
    return _save(folder, backbone, hub.layers.ViTImageConverter(**CONVERTER))


def save_resnet(folder):
    """Saves a ResNet, for any size of images."""
    hub = pytest.importorskip("keras_hub")
    backbone = hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 6],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
    )
    return _save(folder, backbone, hub.layers.ResNetImageConverter(**CONVERTER))


def _save(folder, backbone, preprocessor):
    backbone.save_to_preset(str(folder))
    preprocessor.save_to_preset(str(folder))
    return str(folder)


KINDS = {
    "clip": save_clip,
    "siglip": save_siglip,
    "bert": save_bert,
    "t5": save_t5,
    "dinov2": save_dinov2,
    "vit": save_vit,
    "resnet": save_resnet,
}


class Presets(dict):
    """Name of a kind -> folder of its preset, saved when it is first asked.

    Args:
        folder: the folder for the presets, and for `cache`, where tests share
            the exported models.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)
        self.cache = self.folder / "cache"
        # Keras Hub calls it dozens of times for each preset that it opens.
        from keras_hub.src.utils import preset_utils

        list_subclasses = functools.cache(preset_utils.list_subclasses)
        preset_utils.list_subclasses = list_subclasses

    def __missing__(self, kind):
        keras.utils.set_random_seed(7)
        self[kind] = KINDS[kind](self.folder / kind)
        return self[kind]
