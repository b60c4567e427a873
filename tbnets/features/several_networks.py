"""Photos -> features by several networks, put side by side."""

import tensorflow as tf

from tbnets import photo_head
from tbnets.images import ROOM, decode_image, decode_photo, squeezed


@tf.autograph.experimental.do_not_convert
def decode_squares(image_bytes, sizes):
    """Decodes one photo to several squares, in the graph.

    Each is that of `images.decode_image` to the bit. The file is decompressed
    once, unless it is so large that a square may be made of a part of its
    size.

    Args:
        image_bytes: as in `decode_image`.
        sizes: the `image_size` of each square.

    Returns:
        tuple of float32 `[side, side, 3]`, RGB in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: see `decode_photo`.
    """

    def at_once():
        image = decode_photo(image_bytes)
        return tuple(squeezed(image, one) for one in sizes)

    def one_by_one():
        return tuple(decode_image(image_bytes, one) for one in sizes)

    sides = [one for one in sizes if not callable(one)]
    if not sides:
        return at_once()
    image_bytes, found = photo_head.small_enough(image_bytes)
    is_whole = tf.reduce_min(found) < 2 * ROOM * min(sides)
    return tf.cond(is_whole, at_once, one_by_one)


class SeveralNetworks:
    """Turns photos into the features of several networks, side by side.

    Each network sees the photo at its own size, as alone; what is served is
    what `store.side_by_side.SideBySide` joined for training.

    Args:
        parts: a `PhotoFeatures` for each network, in the order of the stores.
    """

    def __init__(self, parts):
        self.parts = tuple(parts)
        self.dim = sum(part.dim for part in self.parts)

    def decode(self, image_bytes):
        """Decodes one photo: string `[]` -> float32 `[side, side, 3]` each."""
        return decode_squares(image_bytes, [x.squares for x in self.parts])

    def forward(self, photos):
        """Computes the features of decoded photos.

        Args:
            photos: for each network float32 `[n, side, side, 3]`, as of its
                `PhotoFeatures.forward`; n may be 0.

        Returns:
            float32 `[n, dim]`.
        """
        pairs = zip(self.parts, photos)
        return tf.concat([part.forward(some) for part, some in pairs], axis=1)

    def __call__(self, image_bytes):
        """Returns the features of encoded photos.

        Args:
            image_bytes: string `[n]`, JPEG or PNG files; n may be 0.

        Returns:
            float32 `[n, dim]`.
        """
        return tf.concat([part(image_bytes) for part in self.parts], axis=1)
