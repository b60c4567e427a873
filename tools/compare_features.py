"""Compares two sets of image features, image by image.

For example:

  python tools/compare_features.py features/squeezenet precomp/dev_ims.npy

Each argument is a feature store or a .npy file with a file of ids. The command
prints the cosines of rows with the same id, and the share of images whose row
in the first set is nearest to their row in the second set.
"""

import dataclasses
import sys

import numpy as np

from tbnets import cli
from tbnets.checks import per_cent
from tbnets.data.store.opening import open_features
from tbnets.tasks.settings.flag import flag

BLOCK = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags that name the features."""

    features: list[str] = flag([], "Two feature files or stores.", kind="words")


def unit_rows(features, ids):
    """Returns the rows of ids, scaled to length 1."""
    rows = features.take(features.rows(ids))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def compare(first, second):
    """Compares the rows of common ids. Returns (ids, cosines, is_nearest).

    `is_nearest` is whether the nearest row in `second` has the same id.
    """
    common = set(second.ids)
    ids = [key for key in first.ids if key in common]
    a, b = unit_rows(first, ids), unit_rows(second, ids)
    nearest = [
        (a[start : start + BLOCK] @ b.T).argmax(axis=1)
        for start in range(0, len(ids), BLOCK)
    ]
    cosines = np.einsum("ij,ij->i", a, b)
    return ids, cosines, np.concatenate(nearest) == np.arange(len(ids))


def main(options):
    """Prints the comparison."""
    first, second = map(open_features, options.features)
    ids, cosines, nearest = compare(first, second)
    worst = int(cosines.argmin())
    print(
        f"images in common   {len(ids)} of {len(first)} and {len(second)}\n"
        f"cosine, mean       {cosines.mean():.4f}\n"
        f"  5th percentile   {np.percentile(cosines, 5):.4f}\n"
        f"  smallest         {cosines[worst]:.4f}  {ids[worst]}\n"
        f"own row nearest    {per_cent(nearest.mean())} %"
    )


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
