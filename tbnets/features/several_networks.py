"""Photos -> features by several networks, put side by side."""

import tensorflow as tf


class SeveralNetworks:
    """Turns photos into the features of several networks, side by side.

    Each network sees the photo at its own size, as alone; what is served is
    what `data.store.side_by_side.SideBySide` joined for training.

    Args:
        parts: a `PhotoFeatures` for each network, in the order of the stores.
    """

    def __init__(self, parts):
        self.parts = tuple(parts)
        self.dim = sum(part.dim for part in self.parts)

    def decode(self, image_bytes):
        """Decodes one photo: string `[]` -> float32 `[side, side, 3]` each."""
        return tuple(part.decode(image_bytes) for part in self.parts)

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
