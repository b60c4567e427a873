"""The shares of a work joined: byte for byte what one run of it makes.

Shares are runs of whole shards (`shares.take_share`), so their files only get
other names. A photo that was mended after its share was complete stands at
the end of its share: then the rows are those of one run, in another order.
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

# Shares of a work: several processes or machines do one each.
#
# What is worked on (photos, texts) is cut into parts that follow each other.
# Of each becomes a store of its own, whose `extraction` tells under `share`
# which part of what it is; `joining` makes one store of all.

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
            "shard",
            "be I/N, the I-th of N shares, from 1/N to N/N",
            f"shard={shard}",
            "Write for example --shard=1/4.",
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


BESIDE = "files"
"""What a share tells of the files beside its rows: name -> sha256."""


def join(shares, output):
    """Joins all shares of a work into one store, or one file.

    All is checked before anything is written, and `output` appears when it
    is whole. The memory that it takes does not grow with the rows.

    Args:
        shares: paths of all shares in any order: feature stores, or files
            with what `shares.tell_file` wrote beside them.
        output: the new store or file.

    Returns:
        How many items there are, those that failed among them.

    Raises:
        ValueError, FileNotFoundError: one is missing, there twice, not
            complete, damaged, or made otherwise than the others; or
            `output` is there.
        OSError: the disk is full; nothing is left behind.
    """
    output = pathlib.Path(output)
    if output.exists():
        raise InputError(
            "output",
            "be new",
            f"output={output}, which is there",
            "Remove it, or choose another.",
        )
    if not shares:
        raise InputError(
            "shares",
            "be all shares of a work",
            "none",
            "Name them one after the other.",
        )
    for path in shares:
        if not os.path.exists(path):
            _refuse(path, "is not there", "Check the path, or make it.")
    is_stores = any(map(os.path.isdir, shares))
    tell = _made_store if is_stores else _made_file
    made_by = [tell(path) for path in shares]
    _check_alike(shares, made_by)
    shares, items = _in_order(shares, made_by), made_by[0][SHARE]["items"]
    output.parent.mkdir(parents=True, exist_ok=True)
    if is_stores:
        _join_stores(shares, output, items, made_by[0][BESIDE])
    else:
        _write(output, shares)
    return items


def _refuse(path, why, advice):
    raise InputError(
        "shares",
        "be stores, or files of trees, made with --shard=I/N",
        f"{path}, which {why}",
        f"{advice}",
    )


def _made_store(path):
    """Returns what made the store that is a share, and what lies in it.

    Beside the rows may lie what made them, such as an encoder: it must be the
    same in all shares. What is hidden does not count.
    """
    if not os.path.isdir(path):
        _refuse(path, "is a file beside stores", "Join them one by one.")
    store = open_store(path)
    own = {os.path.basename(file) for file in store.files}
    others = (name for name in os.listdir(path) if name not in own)
    beside = {
        name: manifest.file_sha256(os.path.join(path, name))
        for name in others
        if name[0] != "." and os.path.isfile(os.path.join(path, name))
    }
    return _with_share(path, {**store.made_by, BESIDE: beside})


def _made_file(path):
    """Returns what made a file that is a share, whose bytes are checked."""
    place = f"{path}{SUFFIX}"
    if not os.path.exists(place):
        _refuse(path, f"has no {place} beside it", "Copy that too.")
    made_by = _with_share(place, CheckedFile(place).json())
    found = manifest.file_sha256(path)
    if made_by.pop("sha256", None) != found:
        CheckedFile(path).report(
            f"expected the sha256 that {place} tells; found {found}. Copy "
            "both again, or make the share again."
        )
    return made_by


def _with_share(path, made_by):
    """Returns what made a share; refuses what is none."""
    if share_of(made_by) is None:
        _refuse(path, "tells of no share", "Leave it out, or make it so.")
    return made_by


def _check_alike(shares, made_by):
    """Refuses shares that are not of one work, or made otherwise.

    Args:
        shares: paths.
        made_by: what made each, `SHARE` in it.
    """
    works = [{**one, SHARE: {**one[SHARE], "number": 0}} for one in made_by]
    for path, work in zip(shares, works):
        lines = manifest.extraction_differences(works[0], work, shares[0], path)
        if lines:
            raise InputError(
                "shares",
                "be made alike, of the same photos or texts",
                f"{'; '.join(lines)}",
                "Make one of them again with the flags and inputs of the "
                "other, at a new place; take away files that are not theirs.",
            )


def _in_order(shares, made_by):
    """Returns shares in their order; refuses what are not all, each once."""
    of, place = made_by[0][SHARE]["of"], {}
    for path, one in zip(shares, made_by):
        number = one[SHARE]["number"]
        if number in place:
            raise InputError(
                "shares",
                f"be {of} shares, each once",
                f"{place[number]} and {path}, both {number}/{of}",
                "Leave one of them out.",
            )
        place[number] = path
    absent = [f"{one}/{of}" for one in range(1, of + 1) if one not in place]
    if absent:
        raise InputError(
            "shares",
            f"be all {of} shares, of which {shares[0]} is one",
            f"{len(place)}, without {listed(absent)}",
            f"Make what is missing by --shard={absent[0]}, and name all.",
        )
    return [place[number] for number in sorted(place)]


def _write(target, sources):
    """Writes a file of what some files hold, one after the other."""

    def write(file):
        for source in sources:
            with open(source, "rb") as stream:
                shutil.copyfileobj(stream, file)

    files.write_atomically(target, write)


def _join_stores(shares, output, items, beside):
    stores = [load_features([path])[0] for path in shares]
    found = sum(len(store) + len(store.failed) for store in stores)
    if found != items:
        raise InputError(
            "shares",
            f"hold {items} photos or texts, those that failed included",
            f"{found} in {', '.join(map(str, shares))}",
            "One was changed since: make it again.",
        )
    made = stores[0].manifest
    extraction = {k: v for k, v in made.extraction.items() if k != SHARE}
    failed = {key: why for one in stores for key, why in one.failed.items()}
    with files.new_folder(output) as folder:
        for name in beside:
            _write(folder / name, [os.path.join(stores[0].path, name)])
        shards = []
        for one in stores:
            for shard in one.manifest.shards:
                number = f"{len(shards):05d}"
                shards.append(_copied(one.path, shard, folder, number))
        told = {"extraction": extraction, "shards": shards, "failed": failed}
        manifest.write_manifest(folder, dataclasses.replace(made, **told))
        open_store(folder)


def _copied(path, shard, folder, name):
    """Copies a shard under a new name; returns what it is there."""
    sums = {}
    for part, source in shard.files.items():
        target = manifest.file_of(name, part)
        _write(folder / target, [os.path.join(path, source)])
        sums[target] = shard.sha256[source]
    return dataclasses.replace(shard, name=name, sha256=sums)
