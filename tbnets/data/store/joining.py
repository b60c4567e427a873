"""Splits an extraction into shares for several runs, and merges their results.

The merged store or file is byte-identical to the result of a single run, unless
a photo was repaired after its share was complete. A share consists of whole
shards, so merging only copies files under new names.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil

from tbnets import files
from tbnets.data.store import manifest
from tbnets.data.store.features import MOST_LISTED
from tbnets.data.store.manifest import file_sha256
from tbnets.data.store.opening import load_features
from tbnets.data.store.shards import open_store
from tbnets.errors import InputError
from tbnets.files import CheckedFile

SHARE = "share"
MOST = 10**6
SUFFIX = ".share.json"
"""Suffix of the file that describes a share without a manifest."""


def take_share(shard, keys, step=1, **decides):
    """Returns the slice of a share's items, and a dict describing the share.

    The dict is to be added to `extraction`. If there are more shares than
    shards, some shares are empty.

    Args:
        shard: "I/N" for share I of N, where I starts at 1; "" for all items.
        keys: list of JSON values that identify all items, in order.
        step: number of items in a shard. Each share starts at a multiple of it.
        **decides: JSON values of flags that affect the bytes of the store and
            are not in its `extraction`.
    """
    if not shard:
        return slice(None), {}
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        raise InputError(
            "shard",
            "be I/N, share I of N, from 1/N to N/N",
            f"shard={shard}",
            "Set for example --shard=1/4.",
        )
    count = -(-len(keys) // step)
    first, end = (-(-count * i // of) * step for i in (number - 1, number))
    digest = hashlib.sha256(json.dumps(keys).encode()).hexdigest()
    description = {"number": number, "of": of, "items": len(keys)}
    description |= {"items_sha256": digest, **decides}
    return slice(first, end), {SHARE: description}


def share_of(made_by):
    """Returns the valid description of a share in an `extraction`, or None."""
    share = made_by.get(SHARE) if isinstance(made_by, dict) else None
    share = share if isinstance(share, dict) else {}
    number, of, items = (share.get(name) for name in ("number", "of", "items"))
    if not all(type(value) is int for value in (number, of, items)):
        return None
    return share if 1 <= number <= of < MOST and items >= 0 else None


def tell_file(path, made_by):
    """Writes the description of a share, which is a single file, next to it.

    `made_by` includes the description from `take_share`.
    """
    description = {**made_by, "sha256": file_sha256(path)}
    files.write_json(f"{path}{SUFFIX}", description)


BESIDE = "files"
"""Key of the dict that maps a store's additional files to SHA-256 digests."""


def join(shares, output):
    """Merges all shares of an extraction into one store or file.

    `shares` contains the paths of stores, or of files described by `tell_file`,
    in any order. All shares are checked first. Returns the number of items,
    including failed items.
    """
    output = pathlib.Path(output)
    if output.exists():
        raise InputError(
            "output",
            "be a new path",
            f"output={output}, which exists",
            "Remove it, or choose another path.",
        )
    made_by = {path: _made_by(path) for path in map(os.fspath, shares)}
    shares = _in_order(made_by)
    output.parent.mkdir(parents=True, exist_ok=True)
    first = made_by[shares[0]]
    if BESIDE in first:
        _join_stores(shares, output, first[BESIDE])
    else:
        _write(output, shares)
    return first[SHARE]["items"]


def _made_by(path):
    """Returns the settings with which a share was extracted.

    Checks the digest of a share that is a single file. For a store, the
    settings include the digests of other files in its folder.
    """
    if os.path.isfile(path):
        description = CheckedFile(f"{path}{SUFFIX}")
        made_by = description.json()
        _check_share(path, made_by)
        digest = manifest.file_sha256(path)
        if made_by.pop("sha256", None) != digest:
            CheckedFile(path).report(
                f"expected the sha256 in {description.path}; found {digest}. "
                "Copy both files again, or write the share again."
            )
        return made_by
    store = open_store(path)
    _check_share(path, store.made_by)
    known = set(map(os.path.basename, store.files))
    others = [file for file in os.scandir(path) if file.name not in known]
    beside = {
        file.name: manifest.file_sha256(file.path)
        for file in others
        if file.name[0] != "." and file.is_file()
    }
    return {**store.made_by, BESIDE: beside}


def _check_share(path, made_by):
    if share_of(made_by) is None:
        raise InputError(
            "shares",
            "be stores, or files of trees, made with --shard=I/N",
            f"{path}, which describes no share",
            "Leave it out.",
        )


def _in_order(made_by):
    """Checks that the shares are complete; returns their paths in order.

    `made_by` maps each path to the settings of the share.
    """
    paths, works = list(made_by), list(made_by.values())
    numbers = [work[SHARE]["number"] for work in works]
    for path, work, number in zip(paths, works, numbers):
        like = {**works[0], SHARE: {**works[0][SHARE], "number": number}}
        lines = manifest.extraction_differences(like, work, paths[0], path)
        if lines:
            raise InputError(
                "shares",
                "come from identical settings and identical photos or texts",
                "; ".join(lines),
                "Write the different share again at a new path, with identical "
                "flags and inputs. Remove files that do not belong to a share.",
            )
    of = works[0][SHARE]["of"] if works else 1
    missing = sorted(set(range(1, of + 1)) - set(numbers))
    if missing or len(numbers) > of:
        raise InputError(
            "shares",
            f"be all {of} shares of an extraction, each once",
            f"{len(numbers)} shares, without numbers {missing[:MOST_LISTED]}",
            f"Write missing shares with --shard=I/{of}, and pass all shares.",
        )
    return [path for _, path in sorted(zip(numbers, paths))]


def _write(target, sources):

    def write(file):
        for source in sources:
            with open(source, "rb") as stream:
                shutil.copyfileobj(stream, file)

    files.write_atomically(target, write)


def _join_stores(shares, output, beside):
    stores = [load_features([path])[0] for path in shares]
    first = stores[0].manifest
    extraction = {k: v for k, v in first.extraction.items() if k != SHARE}
    failed = {key: why for store in stores for key, why in store.failed.items()}
    with files.new_folder(output) as folder:
        for name in beside:
            _write(folder / name, [os.path.join(stores[0].path, name)])
        shards = []
        for store in stores:
            for shard in store.manifest.shards:
                number = f"{len(shards):05d}"
                shards.append(_copied(store.path, shard, folder, number))
        changes = {"extraction": extraction, "shards": shards, "failed": failed}
        manifest.write_manifest(folder, dataclasses.replace(first, **changes))
        open_store(folder)


def _copied(path, shard, folder, name):
    sums = {}
    for part, source in shard.files.items():
        target = manifest.file_of(name, part)
        _write(folder / target, [os.path.join(path, source)])
        sums[target] = shard.sha256[source]
    return dataclasses.replace(shard, name=name, sha256=sums)
