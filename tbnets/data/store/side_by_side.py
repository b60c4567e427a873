"""Features of several sources put side by side, joined by id."""

import numpy as np

from tbnets.data.store.arrays import Features, ids_file
from tbnets.errors import InputError

SIDE_BY_SIDE = "side_by_side"
"""Where `made_by` tells what made each part, in their order."""


class SideBySide(Features):
    """Features of several sources in one row, joined by id.

    It has the ids that all sources have, in the order of the first.

    Args:
        parts: `Features`, whose rows are put side by side in this order.

    Raises:
        ValueError: one has no ids, or no id is in all of them.
    """

    parts: tuple = ()

    def __init__(self, parts):
        for part in parts:
            if not part.has_ids:
                raise InputError(
                    f"{part.path}: expected ids, by which features are put "
                    f"side by side; found no file {ids_file(part.path)}. "
                    "Write the id of each row to it, one a line."
                )
        common = list(dict.fromkeys(parts[0].ids))
        for part in parts:
            missing = set(part.missing(common))
            common = [key for key in common if key not in missing]
        if not common:
            looks = "; ".join(f"in {p.path} {p.looks()}" for p in parts)
            raise InputError(
                "`parts` must be features with ids in common. Received: "
                f"{looks}. Write the ids alike."
            )
        path = ", ".join(part.path for part in parts)
        super().__init__(common, sum(part.dim for part in parts), path)
        self.parts = tuple(parts)
        self._part_rows = [part.rows(self.ids) for part in parts]
        self.failed = {k: v for part in parts for k, v in part.failed.items()}
        self.made_by = joined_made_by([part.made_by for part in parts])

    def rows(self, image_ids) -> np.ndarray:
        """Returns the rows of images; the error names the part without."""
        for part in self.parts:
            part.rows(image_ids)
        return super().rows(image_ids)

    def _read(self, rows):
        pairs = zip(self.parts, self._part_rows)
        taken = [part.take(own_rows[rows]) for part, own_rows in pairs]
        return np.concatenate(taken, axis=1)

    def verify(self):
        """Compares what is on disk with its checksums, where it has any."""
        for part in self.parts:
            part.verify()


def joined_made_by(parts) -> dict:
    """Returns the `made_by` of features put side by side.

    Args:
        parts: `Features.made_by` of each.
    """
    if len(parts) == 1:
        return parts[0]
    return {SIDE_BY_SIDE: list(parts)} if any(parts) else {}
