"""SqueezeNet 1.1, which Keras does not hold."""

import keras

SQUEEZE, EXPAND = (16, 16, 32, 32, 48, 48, 64, 64), (64, 128, 192, 256)


def SqueezeNet(input_shape):  # noqa: N802 - named as those of Keras are
    """Builds SqueezeNet 1.1 without its classifier, 722,496 parameters.

    A 3x3 convolution of stride 2, then eight fire modules: a 1x1 squeeze
    and, from it, 1x1 and 3x3 expansions side by side. Convolutions 1 and
    the poolings (3x3, stride 2) pad nothing.

    Args:
        input_shape: `(height, width, 3)`; at least 47 pixels a side.

    Returns:
        A functional Keras model, float `[n, height, width, 3]` -> `[n,
        height', width', 512]`.

    Source: Iandola et al. 2016, "SqueezeNet", and the authors' release 1.1.
    """
    layers = keras.layers

    def convolve(inputs, channels, side, name):
        return layers.Conv2D(
            channels, side, padding="same", activation="relu", name=name
        )(inputs)

    inputs = keras.Input(input_shape)
    outputs = layers.Conv2D(64, 3, 2, activation="relu", name="conv1")(inputs)
    outputs = layers.MaxPooling2D(3, 2, name="pool1")(outputs)
    for i, squeeze in enumerate(SQUEEZE):
        name, expand = f"fire{i + 2}", EXPAND[i // 2]
        squeezed = convolve(outputs, squeeze, 1, f"{name}_squeeze1x1")
        expanded = [
            convolve(squeezed, expand, side, f"{name}_expand{side}x{side}")
            for side in (1, 3)
        ]
        outputs = layers.Concatenate(name=f"{name}_concat")(expanded)
        if name in ("fire3", "fire5"):
            outputs = layers.MaxPooling2D(3, 2, name=f"pool{name[-1]}")(outputs)
    return keras.Model(inputs, outputs, name="squeezenet")
