"""Encoded photos -> pixels, by one function for training and serving.

`decode_image` runs in the graph, so the exported model decodes and resizes
exactly as the training input did. `load_image` is the same function for a
file on the host, with errors that name the file.
"""

import pathlib
import re

import PIL.Image
import tensorflow as tf

MAX_PIXELS = 80_000_000


def decode_image(image_bytes, image_size):
    """Decodes one photo and resizes it to a square, in the graph.

    Greyscale is repeated over the three channels, an alpha channel is
    dropped. The aspect ratio is not kept: the whole photo is squeezed into
    the square, so nothing at the border is lost. The resize is bilinear with
    antialiasing. An EXIF rotation is not applied.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        image_size: side of the square, in pixels.

    Returns:
        float32 `[image_size, image_size, 3]`, RGB in [0, 255].
    """
    image = tf.io.decode_image(image_bytes, channels=3, expand_animations=False)
    image = tf.image.resize(
        image, [image_size, image_size], method="bilinear", antialias=True
    )
    return tf.ensure_shape(image, [image_size, image_size, 3])


def decode_images(image_bytes, image_size):
    """Decodes a batch of photos; see `decode_image`.

    Args:
        image_bytes: string `[num_images]`; `num_images` may be 0.
        image_size: side of the square, in pixels.

    Returns:
        float32 `[num_images, image_size, image_size, 3]`, RGB in [0, 255].
    """
    return tf.map_fn(
        lambda one: decode_image(one, image_size),
        tf.convert_to_tensor(image_bytes, tf.string),
        fn_output_signature=tf.TensorSpec(
            [image_size, image_size, 3], tf.float32
        ),
    )


def read_image_bytes(path):
    """Reads a photo's file and checks its header before it is decoded.

    Args:
        path: JPEG or PNG file.

    Returns:
        bytes, the content of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a JPEG or PNG file, or has more than
            `MAX_PIXELS` pixels.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"`path` must name a photo. Received: path='{path}', which is not "
            "a file. Check the image folder."
        )
    try:
        with PIL.Image.open(path, formats=("JPEG", "PNG")) as image:
            width, height = image.size
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise _undecodable(path, error) from error
    if width * height > MAX_PIXELS:
        raise ValueError(
            f"`path` must name a photo of at most {MAX_PIXELS} pixels. "
            f"Received: path='{path}' of {width} x {height} pixels. "
            "Scale it down."
        )
    return path.read_bytes()


def load_image(path, image_size):
    """Reads, decodes and resizes one photo.

    Args:
        path: JPEG or PNG file.
        image_size: side of the square, in pixels.

    Returns:
        float32 NumPy array `[image_size, image_size, 3]`, RGB in [0, 255].

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, not a photo or too large; names
            the path.
    """
    content = read_image_bytes(path)
    try:
        return decode_image(content, image_size).numpy()
    except tf.errors.InvalidArgumentError as error:
        reason = re.sub(r"\{\{.*\}\} | \[Op:\w+\]", "", error.message)
        raise _undecodable(path, reason.rstrip(".")) from error


def _undecodable(path, reason):
    """Makes the error for a file that is no whole JPEG or PNG."""
    return ValueError(
        "`path` must name a whole JPEG or PNG file. Received: "
        f"path='{path}', which does not decode: {reason}. Replace or remove "
        "the file."
    )
