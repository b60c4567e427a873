"""Handles the names of Keras Hub presets, `hub:PRESET`.

PRESET is a name in Keras Hub (`hub:clip_vit_base_patch16`), a handle
(`hub:kaggle://...`, `hub:hf://...`), or a folder. Two kinds of text networks do
not need Keras Hub: `hub:minilm`, and folders of sentence-transformers.
"""

import pathlib
from typing import Any

PREFIX = "hub:"
"""Prefix of a preset in flags that also accept other networks."""
MINILM = f"{PREFIX}minilm"
"""The sentence encoder of a pip package, see `text_presets`."""


def package():
    """Imports `tbnets.extras.hub`."""
    # This is the only import of an extra in the core packages.
    from tbnets.extras import hub

    return hub


def is_hub(name):
    """Returns whether a flag's value names a Keras Hub preset."""
    return isinstance(name, str) and name.startswith(PREFIX)


def placed(name, *starts):
    """Makes the folder path in a preset's name absolute.

    A relative path is looked up in the folders `starts`, in order, or by
    default in the current folder. If no folder exists, and for `MINILM`, the
    name is returned unchanged.
    """
    is_path = is_hub(name) and name != MINILM
    for start in starts or [""] if is_path else ():
        folder = pathlib.Path(start, name.removeprefix(PREFIX)).absolute()
        if folder.is_dir():
            return f"{PREFIX}{folder}"
    return name


def unplaced(name):
    """Removes the parent folders from the path in a preset's name."""
    is_path = is_hub(name) and "/" in name and "://" not in name
    return f"{PREFIX}{pathlib.Path(name).name}" if is_path else name


def from_preset(name: str) -> tuple[Any, Any]:
    """Makes a network of a preset that embeds both photos and captions.

    Args:
        name: name of a Keras Hub preset, such as "clip_vit_base_patch32", a
            handle or a folder. CLIP, MetaCLIP 2 and SigLIP embed both.

    Returns:
        (network, tokenizer): an `EmbeddingNetwork` whose branches are
        identities, with the weights of the preset; and its `HubTokenizer`,
        which maps strings `[n]` to the ids of captions. The network takes RGB
        photos `[n, size, size, 3]` in [0, 255].

    Raises:
        ValueError: Keras Hub cannot open the preset, or it lacks a network for
            photos or captions.

    Example:
        network, tokenizer = tbnets.from_preset("clip_vit_base_patch32")
        network.embed_text(tokenizer(["a dog"]))  # [1, 512], unit length
    """
    return package().from_preset(name)
