"""The settings of a set of scenes, checked once."""

import dataclasses

from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError

# Scene ids are numbers, as Flickr's are: the first digit tells the split.
SCENES_PER_SPLIT = 1_000_000
_RANGES = {
    "num_train": (0, SCENES_PER_SPLIT),
    "num_dev": (0, SCENES_PER_SPLIT),
    "num_test": (0, SCENES_PER_SPLIT),
    "image_size": (48, 1024),
    "seed": (0, 2**63 - 1),
    "clutter": (0, 1),
}


@dataclasses.dataclass(frozen=True)
class SceneSettings:
    """What makes a set of scenes: the same settings give the same bytes.

    Args:
        num_train: scenes of split "train".
        num_dev: scenes of split "val", as Karpathy's json calls it.
        num_test: scenes of split "test".
        image_size: width and height of the images, in pixels, 48 to 1024.
        seed: integer from 0; other seeds give other scenes.
        clutter: from 0 (the objects alone) to 1 (many lines, strong noise).

    Raises:
        ValueError: a setting is out of range.
    """

    num_train: int = 2000
    num_dev: int = 250
    num_test: int = 250
    image_size: int = 96
    seed: int = 0
    clutter: float = 0.3

    def __post_init__(self):
        for name, (low, high) in _RANGES.items():
            value, whole = getattr(self, name), name != "clutter"
            value = checked_number(name, value, low, whole, most=high)
            object.__setattr__(self, name, value)
        if not self.num_scenes:
            raise InputError(
                "`num_train`, `num_dev` or `num_test` must ask for one scene "
                "at least. Received: 0 for each. Raise one."
            )

    @property
    def num_scenes(self):
        """Number of scenes in all splits."""
        return sum(self.counts().values())

    def counts(self):
        """Returns split -> number of its scenes."""
        counts = self.num_train, self.num_dev, self.num_test
        return dict(zip(("train", "val", "test"), counts))
