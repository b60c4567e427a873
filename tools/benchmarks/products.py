"""Builds the graphs to time, and the matrix products of the lower bounds.

The products use forward values in place of gradients, because only the sizes
affect the time.
"""

import tensorflow as tf

from tbnets.startup import no_accelerator


def graph(function, *inputs):
    """Compiles a function, and wraps it and its inputs with `waiting`."""
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    return waiting(tf.function(function), *inputs)


def waiting(function, *inputs):
    """Returns a function without arguments that calls `function(*inputs)`.

    It waits until the device has finished, and returns the first result, which
    remains on the device because copying takes time.
    """

    def call():
        first, *_ = tf.nest.flatten(function(*inputs))
        tf.test.experimental.sync_devices()
        return first

    return call


def weights(dims, seed, dtype=tf.float32):
    """Returns random weight matrices for layers of the sizes `dims`."""
    return [
        tf.random.stateless_normal(shape, (seed, i), dtype=dtype)
        for i, shape in enumerate(zip(dims, dims[1:]))
    ]


def forward(rows, kernels):
    """Returns a list of the rows and the output of each layer."""
    values = [rows]
    for kernel in kernels:
        values.append(tf.matmul(values[-1], kernel))
    return values


def backward(values, kernels):
    """Returns the matrix products for gradients of kernels and hidden values.

    `values` is the result of `forward`.
    """
    products = []
    for place, kernel in enumerate(kernels):
        inputs, outputs = values[place : place + 2]
        products.append(tf.matmul(inputs, outputs, transpose_a=True))
        if place:
            products.append(tf.matmul(outputs, kernel, transpose_b=True))
    return products


def similarities(images, texts, *ids):
    """Returns the image-text and the text-text inner products."""
    return (
        tf.matmul(images, texts, transpose_b=True),
        tf.matmul(texts, texts, transpose_b=True),
    )


def cross(images, texts, *ids):
    """Returns the inner products of images with texts, as a list."""
    return [tf.matmul(images, texts, transpose_b=True)]


def with_gradients(forward):
    """Returns a function that computes inner products and their gradients.

    The matrices that `forward(images, texts)` returns are also used in place of
    the gradients with respect to these matrices.
    """

    def step(images, texts, *ids):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            matrices = forward(images, texts)
        return tape.gradient(
            matrices,
            [images, texts],
            output_gradients=[tf.stop_gradient(matrix) for matrix in matrices],
        )

    return step


def gradient():
    """Returns the argument `gradient` of `TripletLoss` for this device."""
    return "sparse" if no_accelerator() else "dense"


def learning(loss):
    """Returns a function that computes a loss and its gradients.

    The gradients are with respect to the embeddings.
    """

    def step(images, texts, *ids):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = loss(images, texts, *ids)
        total = getattr(output, "total", output)
        return total, output, tape.gradient(total, [images, texts])

    return step


def learning_squares(layer, function=None):
    """Returns a function that computes a loss and its gradients.

    The loss is the sum of squared outputs. The gradients are with respect to
    the layer's variables and the first argument.
    """

    def step(vectors, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            total = tf.reduce_sum(
                tf.square((function or layer)(vectors, *inputs))
            )
        return total, tape.gradient(
            total, [vectors, *layer.trainable_variables]
        )

    return step
