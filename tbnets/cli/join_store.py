r"""Merge the shares of an extraction, of proposals or of parsing.

For example, run on four machines with identical photos, with I from 1 to 4:

  python tools/extract_image_features.py --images=photos --shard=I/4 \
      --output=shares/lite0.I

and then, once, where all four stores are:

  python tools/join_store.py shares/lite0.* --output=features/lite0

The command merges the shares into a store byte-identical to that of a single
run, including the list of left-out photos, if all processors are of one kind.
Other kinds round differently. Shares of tools/extract_text_features.py,
tools/propose_regions.py and tools/parse_captions.py (files of trees, each with
its .share.json) are merged in this way too. The command writes no store and
reports an error if a share is missing, repeated, incomplete or damaged, or was
made with other flags, weights or inputs.

docs/feature_stores.md describes how the work is divided.
"""

import dataclasses

from tbnets.data.store.joining import join
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags: the shares and the result."""

    shares: list[str] = flag(
        [], "All shares, in any order: stores, or files of trees.", kind="words"
    )
    output: str = flag(REQUIRED, "Store, or file of trees, to write.")


def main(options):
    """Merges the shares that the flags name."""
    items = join(options.shares, options.output)
    print(
        f"joined    {options.output}: {items} photos or texts of "
        f"{len(options.shares)} shares"
    )
