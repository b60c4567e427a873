"""Splits an extraction into shares, and merges their results.

The merged store or file is byte-identical to the result of a single run, unless
a photo was repaired after its share was complete. A share consists of whole
shards, so that merging only renames their files.
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
from tbnets.data.store.manifest import file_sha256
from tbnets.data.store.opening import load_features
from tbnets.data.store.shards import open_store
from tbnets.errors import InputError
from tbnets.files import CheckedFile, listed

SHARE = "share"
MOST = 10**6
SUFFIX = ".share.json"
"""Suffix of the file that describes a share that is a single file."""


def take_share(shard, keys, step=1, **decides):
    """Returns the slice that selects a share's items, and its description.

    The description is a dict to add to `extraction`. If there are more shares
    than shards, some shares are empty.

    Args:
        shard: "I/N", share I of N, where I starts at 1; "" for all items.
        keys: JSON values, which name the items in order.
        step: number of items in a shard. A share starts at a multiple of it.
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
    """Returns the description of a share in an `extraction`, or None."""
    share = made_by.get(SHARE) if isinstance(made_by, dict) else None
    share = share if isinstance(share, dict) else {}
    number, of, items = (share.get(name) for name in ("number", "of", "items"))
    if not all(type(value) is int for value in (number, of, items)):
        return None
    return share if 1 <= number <= of < MOST and items >= 0 else None


def tell_file(path, made_by):
    """Writes the description of a share that is a single file.

    `made_by` includes the description from `take_share`.
    """
    description = {**made_by, "sha256": file_sha256(path)}
    files.write_json(f"{path}{SUFFIX}", description)


BESIDE = "files"
"""Key of the dict that maps a share's additional files to their SHA-256."""


def join(shares, output):
    """Merges all shares of an extraction into one store or file.

    All shares are checked first. They are feature stores, or files with the
    description from `tell_file`, in any order. Returns the number of items,
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
    if not shares:
        raise InputError(
            "shares",
            "be all shares of an extraction",
            "no shares",
            "Pass the paths of all shares.",
        )
    for path in shares:
        if not os.path.exists(path):
            _refuse(path, "does not exist", "Check the path.")
    is_stores = any(map(os.path.isdir, shares))
    tell = _made_store if is_stores else _made_file
    made_by = [tell(path) for path in shares]
    _check_alike(shares, made_by)
    shares, items = _in_order(shares, made_by), made_by[0][SHARE]["items"]
    output.parent.mkdir(parents=True, exist_ok=True)
    if is_stores:
        _join_stores(shares, output, made_by[0][BESIDE])
    else:
        _write(output, shares)
    return items


def _refuse(path, why, advice):
    raise InputError(
        "shares",
        "be stores, or files of trees, made with --shard=I/N",
        f"{path}, which {why}",
        advice,
    )


def _made_store(path):
    # Adds the hashes of other files in the folder, which must be identical in
    # all shares.
    if not os.path.isdir(path):
        _refuse(path, "is a file, unlike other shares", "Merge it separately.")
    store = open_store(path)
    store_names = {os.path.basename(file) for file in store.files}
    extra_names = (name for name in os.listdir(path) if name not in store_names)
    beside = {
        name: manifest.file_sha256(os.path.join(path, name))
        for name in extra_names
        if name[0] != "." and os.path.isfile(os.path.join(path, name))
    }
    return _with_share(path, {**store.made_by, BESIDE: beside})


def _made_file(path):
    place = f"{path}{SUFFIX}"
    if not os.path.exists(place):
        _refuse(path, f"lacks its description {place}", "Copy this file too.")
    made_by = _with_share(place, CheckedFile(place).json())
    digest = manifest.file_sha256(path)
    if made_by.pop("sha256", None) != digest:
        CheckedFile(path).report(
            f"expected the sha256 in {place}; found {digest}. Copy both files "
            "again, or write the share again."
        )
    return made_by


def _with_share(path, made_by):
    if share_of(made_by) is None:
        _refuse(path, "describes no share", "Leave it out.")
    return made_by


def _check_alike(shares, made_by):
    works = [{**each, SHARE: {**each[SHARE], "number": 0}} for each in made_by]
    for path, work in zip(shares, works):
        lines = manifest.extraction_differences(works[0], work, shares[0], path)
        if lines:
            raise InputError(
                "shares",
                "come from identical settings and identical photos or texts",
                "; ".join(lines),
                "Write the different share again at a new path, with identical "
                "flags and inputs. Remove files that do not belong to a share.",
            )


def _in_order(shares, made_by):
    of, place = made_by[0][SHARE]["of"], {}
    for path, extraction in zip(shares, made_by):
        number = extraction[SHARE]["number"]
        if number in place:
            raise InputError(
                "shares",
                f"be {of} different shares",
                f"{place[number]} and {path}, both {number}/{of}",
                "Leave one path out.",
            )
        place[number] = path
    absent = [f"{n}/{of}" for n in range(1, of + 1) if n not in place]
    if absent:
        raise InputError(
            "shares",
            f"be all {of} shares of the extraction of {shares[0]}",
            f"{len(place)} shares, without {listed(absent)}",
            f"Write the missing share with --shard={absent[0]}, and pass all "
            "shares.",
        )
    return [place[number] for number in sorted(place)]


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
