"""Writes a tiny folder of sentence-transformers, and defines its vectors."""

import json
import math

import numpy as np

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS += ("a", "dog", "run", "##s", "##ning", "cafe", ",", "the", "red")
DIM, HIDDEN, LAYERS, HEADS, POSITIONS = 8, 12, 2, 2, 10
EPSILON = 1e-6


def tokenizer_config(**normalizer):
    """Returns the content of a `tokenizer.json`, complete for `tokenizers`."""
    flags = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False
    )
    special = [
        {"id": number, "content": word, "special": True, **flags}
        for number, word in enumerate(WORDS[:5])
    ]
    options = {"clean_text": True, "handle_chinese_chars": True}
    options |= {"strip_accents": None, "lowercase": True, **normalizer}
    return {
        "version": "1.0",
        **dict.fromkeys(["truncation", "padding", "decoder"]),
        "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", **options},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", WORDS.index("[SEP]")],
            "cls": ["[CLS]", WORDS.index("[CLS]")],
        },
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: number for number, word in enumerate(WORDS)},
        },
    }


def random_weights(seed=0):
    """Returns float32 arrays by the names of a `BertModel`."""
    rng = np.random.default_rng(seed)
    tables = {"word": len(WORDS), "position": POSITIONS, "token_type": 2}
    shapes = {
        f"embeddings.{name}_embeddings.weight": (size, DIM)
        for name, size in tables.items()
    }
    dense = {
        "attention.self.query": (DIM, DIM),
        "attention.self.key": (DIM, DIM),
        "attention.self.value": (DIM, DIM),
        "attention.output.dense": (DIM, DIM),
        "intermediate.dense": (HIDDEN, DIM),
        "output.dense": (DIM, HIDDEN),
    }
    norms = ["embeddings"]
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        norms += [f"{layer}.attention.output", f"{layer}.output"]
        for name, shape in dense.items():
            shapes[f"{layer}.{name}.weight"] = shape
            shapes[f"{layer}.{name}.bias"] = shape[:1]
    for name in norms:
        for part in ("weight", "bias"):
            shapes[f"{name}.LayerNorm.{part}"] = (DIM,)
    return {
        name: rng.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def safetensors(arrays):
    """Returns the bytes of a `.safetensors` file."""
    header, content = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        end = len(content) + array.nbytes
        dtype = {"f4": "F32", "f2": "F16", "i8": "I64"}[array.dtype.str[1:]]
        header[name] = {
            "dtype": dtype,
            "shape": array.shape,
            "data_offsets": [len(content), end],
        }
        content += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def write_folder(folder, weights=None, pooling="mean", normalize=True):
    """Writes the files that the package `sentence-transformers` writes."""
    weights = random_weights() if weights is None else weights
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    modules = [
        {
            "idx": number,
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    modes = {"mean": "mean_tokens", "max": "max_tokens", "cls": "cls_token"}
    pooled = {
        f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()
    }
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "num_attention_heads": HEADS,
        "layer_norm_eps": EPSILON,
        "max_position_embeddings": 10**9,  # Sizes of arrays are not read here.
    }
    contents = {
        "modules.json": modules,
        "config.json": config,
        "1_Pooling/config.json": pooled,
        "sentence_bert_config.json": {"max_seq_length": 7},
        "tokenizer.json": tokenizer_config(),
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(safetensors(weights))
    return folder


def forward(weights, ids, pooling="mean", normalize=True, heads=HEADS):
    """Returns the vector of one row of ids without padding, in float64."""
    weights = {k: v.astype("float64") for k, v in weights.items()}
    table = {
        k: weights[f"embeddings.{k}_embeddings.weight"]
        for k in ("word", "position", "token_type")
    }
    epsilon = EPSILON if len(table["word"]) == len(WORDS) else 1e-12

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        name = f"{name}.LayerNorm"
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def dense(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x = table["word"][ids] + table["position"][: len(ids)]
    x = norm(x + table["token_type"][0], "embeddings")
    size = x.shape[1] // heads
    number = 0
    while (
        layer := f"encoder.layer.{number}"
    ) + ".output.dense.bias" in weights:
        number += 1
        query, key, value = (
            dense(x, f"{layer}.attention.self.{part}")
            for part in ("query", "key", "value")
        )
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:, part].T / math.sqrt(size)
            scores = np.exp(scores - scores.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
            mixed.append(scores @ value[:, part])
        output = f"{layer}.attention.output"
        x = norm(x + dense(np.hstack(mixed), f"{output}.dense"), output)
        hidden = dense(x, f"{layer}.intermediate.dense")
        # GELU is x times the normal distribution function of x.
        hidden *= 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        output = f"{layer}.output"
        x = norm(x + dense(hidden, f"{output}.dense"), output)
    vector = {"mean": x.mean(0), "max": x.max(0), "cls": x[0]}[pooling]
    return vector / np.linalg.norm(vector) if normalize else vector
