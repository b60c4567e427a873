r"""Merge shares of extracted features, proposed boxes or parse trees.

For example, run this on four machines, with I from 1 to 4:

  tbnets extract_image_features --images=photos --shard=I/4 \
      --output=shares/lite0.I

Then run this on a machine with all four stores:

  tbnets join_store shares/lite0.* --output=features/lite0

If all machines have the same type of processor, the merged store is
byte-identical to the store that one machine would write. Each file of trees
requires its .share.json file. If a share is missing, repeated, incomplete,
damaged or made with different flags, weights or inputs, the command writes no
store.

See docs/feature_stores.md.
"""

import dataclasses

from tbnets.data.store.joining import join
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags that name the shares to merge, and the output."""

    shares: list[str] = flag(
        [], "All shares, in any order: stores, or files of trees.", kind="words"
    )
    output: str = flag(REQUIRED, "Store, or file of trees, to write.")


def main(options):
    """Merges the shares."""
    items = join(options.shares, options.output)
    print(
        f"joined    {options.output}: {items} photos or texts of "
        f"{len(options.shares)} shares"
    )
