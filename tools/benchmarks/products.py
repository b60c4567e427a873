"""Graphs that are waited for, and products that none can leave out.

Values stand in for gradients: only the sizes of products matter.
"""

import tensorflow as tf


def graph(function, *inputs):
    """Returns a call of a function of arrays as a graph.

    The call returns the first of the results as an array, once all of them
    are there.
    """
    compiled = tf.function(function)
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)

    def call():
        results = tf.nest.flatten(compiled(*inputs))
        return [result.numpy() for result in results][0]

    return call


def weights(dims, seed):
    """Returns random matrices of layers from each size to the next."""
    shapes = enumerate(zip(dims, dims[1:]))
    return [tf.random.stateless_normal(x, (seed, i)) for i, x in shapes]


def forward(rows, kernels):
    """Returns rows, and what comes of them behind each matrix."""
    values = [rows]
    for kernel in kernels:
        values.append(tf.matmul(values[-1], kernel))
    return values


def backward(values, kernels, to_rows=False):
    """Returns the gradients of matrices and of the values between them.

    Args:
        values: what `forward` returned.
        kernels: the matrices.
        to_rows: whether the rows have a gradient too.
    """
    found = []
    for place, kernel in enumerate(kernels):
        inputs, outputs = values[place : place + 2]
        found.append(tf.matmul(inputs, outputs, transpose_a=True))
        if place or to_rows:
            found.append(tf.matmul(outputs, kernel, transpose_b=True))
    return found


def similarities(images, texts, *ids):
    """Returns the inner products of images with texts, texts with texts."""
    return (
        tf.matmul(images, texts, transpose_b=True),
        tf.matmul(texts, texts, transpose_b=True),
    )


def dense_loss(images, texts, *ids):
    """Returns `similarities` carried back; they stand in for a gradient."""
    with tf.GradientTape() as tape:
        tape.watch([images, texts])
        matrices = similarities(images, texts)
    return tape.gradient(
        matrices,
        [images, texts],
        output_gradients=[tf.stop_gradient(matrix) for matrix in matrices],
    )


def learning(loss):
    """Returns a function of a loss: total, output, gradients of embeddings.

    Args:
        loss: of embeddings and ids, whose output is or has a `total`.
    """

    def step(images, texts, *ids):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = loss(images, texts, *ids)
        total = getattr(output, "total", output)
        return total, output, tape.gradient(total, [images, texts])

    return step


def learning_squares(layer, function=None):
    """Returns a function: the sum of squared outputs, and all gradients.

    Args:
        layer: whose variables have gradients.
        function: of vectors, which have gradients, and other inputs; by
            default the layer.
    """

    def step(vectors, *others):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            total = tf.reduce_sum(
                tf.square((function or layer)(vectors, *others))
            )
        return total, tape.gradient(
            total, [vectors, *layer.trainable_variables]
        )

    return step
