r"""Joins the shares of an extraction, of proposals or of parsing into one.

For instance, on four machines that see the same photos, I from 1 to 4:

  python tools/extract_image_features.py --images=photos --shard=I/4 \
      --output=shares/lite0.I

and then, once, wherever all four stores are:

  python tools/join_store.py shares/lite0.* --output=features/lite0

The store is byte for byte that of one run without --shard, left-out photos
included, where the processors are of one kind: others round otherwise. Shares
of tools/extract_text_features.py, tools/propose_regions.py and
tools/parse_captions.py (files of trees, each with its .share.json) are joined
likewise. A share that is missing, there twice, not complete, damaged, or made
with other flags, weights or inputs is refused, and nothing is written.

docs/feature_stores.md tells how the work is cut.
"""

import dataclasses

from tbnets.data.store.joining import join
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Which shares are joined, and where they go."""

    shares: list[str] = flag(
        [], "All shares, in any order: stores, or files of trees.", kind="words"
    )
    output: str = flag(REQUIRED, "The store, or file of trees, to write.")


def main(options):
    """Joins by the flags."""
    items = join(options.shares, options.output)
    print(
        f"joined    {options.output}: {items} photos or texts of "
        f"{len(options.shares)} shares"
    )
