"""A side of a two-branch model: a branch, and what encodes its inputs."""

import keras

from tbnets.errors import InputError, check_kind
from tbnets.layers.dropout import SeededDropout

SIDES = {
    "image_branch": "tbnets.Branch((512, 256))",
    "text_branch": "tbnets.Branch((512, 256))",
    "image_encoder": "tbnets.SmallConvNet()",
    "text_encoder": "tbnets.MeanOfWords(vocabulary.size)",
}
"""The layers of a network by their arguments, with an example of each."""


def check_sides(model):
    """Refuses a model whose branches or encoders are not layers."""
    for name, example in SIDES.items():
        part = getattr(model, name)
        advice = f"Give for example {example}."
        if part is not None or name.endswith("branch"):
            check_kind(name, part, keras.layers.Layer, advice)


def draw_apart(image_branch, text_branch):
    """Lets the branches drop by different masks where seeds are the same.

    Row i of either may be that of one pair: of equal masks a network learns
    to find the pair by its mask.
    """
    seeds = {layer.seed for layer in _dropouts(image_branch)}
    for layer in _dropouts(text_branch):
        if layer.seed in seeds:
            layer.draw_apart()


def _dropouts(branch):
    steps = getattr(branch, "steps", ())
    return [step for step in steps if isinstance(step, SeededDropout)]


def _output_dim(layer):
    """Returns the size of what a built branch or encoder returns."""
    size = getattr(layer, "output_dim", None)
    if size is None:
        raise InputError(
            "A branch or encoder must tell its `output_dim`. Received: "
            f"{type(layer).__name__} without. Set it in `__init__` or `build`."
        )
    return size


def build_side(shape, encoder, branch):
    """Builds an encoder, which may be None, and the branch behind it.

    Args:
        shape: of what comes in.
        encoder: layer, or None.
        branch: layer on what the encoder returns.

    Returns:
        The size of what the branch returns.
    """
    if encoder is not None:
        if not encoder.built:
            encoder.build(shape)
        shape = (None, _output_dim(encoder))
    if not branch.built:
        branch.build(shape)
    return _output_dim(branch)


def embed_side(inputs, encoder, branch, training):
    """Returns what a branch makes of inputs, behind an encoder if any."""
    if encoder is not None:
        inputs = encoder(inputs, training=training)
    return branch(inputs, training=training)
