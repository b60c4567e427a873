"""Shares of a work: several processes or machines do one each.

What is worked on (photos, texts) is cut into parts that follow each other. Of
each becomes a store of its own, whose `extraction` tells under `share` which
part of what it is; `joining` makes one store of all.
"""

import hashlib
import json
import re

from tbnets import files
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError

SHARE = "share"
MOST = 10**6
SUFFIX = ".share.json"
"""What tells of a file that is a share is called like it, and ends so."""


def take_share(shard, keys, step=1, **decides):
    """Returns which items a share has, and what its store tells of it.

    A share begins where one run begins a shard, at a multiple of `step`: its
    batches and shards hold what they do in one run, and so the same bytes.
    One share may have a shard more than another; where there are more shares
    than shards, the last ones have none.

    Args:
        shard: "I/N", the I-th of N shares, from 1; "" for one run of all.
        keys: list of JSON values, the name of each item in order.
        step: items of a shard.
        **decides: JSON values of flags that decide the bytes of the store,
            and that it does not tell otherwise.

    Returns:
        (rows, told): the slice of the items, and a dict to add to what made
        the store, empty without `shard`.

    Raises:
        ValueError: `shard` is no share.
    """
    if not shard:
        return slice(None), {}
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise InputError(
            "`shard` must be I/N, the I-th of N shares, from 1/N to N/N. "
            f"Received: shard={shard}. Write for example --shard=1/4."
        )
    count = -(-len(keys) // step)
    first, end = (-(-count * i // of) * step for i in (number - 1, number))
    digest = hashlib.sha256(json.dumps(keys).encode()).hexdigest()
    told = {"number": number, "of": of, "items": len(keys)}
    told |= {"items_sha256": digest, **decides}
    return slice(first, end), {SHARE: told}


def share_of(made_by):
    """Returns which share something is, as `take_share` told it, or None.

    Args:
        made_by: what it tells of how it was made; any JSON value.
    """
    told = made_by.get(SHARE) if isinstance(made_by, dict) else None
    told = told if isinstance(told, dict) else {}
    number, of, items = (told.get(name) for name in ("number", "of", "items"))
    if not all(type(one) is int for one in (number, of, items)):
        return None
    return told if 1 <= number <= of < MOST and items >= 0 else None


def tell_file(path, made_by):
    """Writes beside a file, which is a share, what made it.

    Args:
        path: the file.
        made_by: dict of JSON values, with what `take_share` returned.
    """
    told = {**made_by, "sha256": file_sha256(path)}
    files.write_json(f"{path}{SUFFIX}", told)
