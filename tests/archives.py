"""Writes archives of photos as other programs write them."""

import io
import tarfile

import numpy as np


def write_tar(path, contents, **options):
    """Writes a tar archive.

    Args:
        path: path of the archive.
        contents: {name: text or bytes}, or a list of such pairs.
        **options: arguments of `tarfile.open`, such as `format`.
    """
    pairs = contents.items() if isinstance(contents, dict) else contents
    with tarfile.open(path, "w", **options) as archive:
        for name, content in pairs:
            if isinstance(content, str):
                content = content.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_shards(folder, name, samples, count):
    """Writes `samples`, a list of {name: content}, into `count` shards."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(samples, count)):
        pairs = [pair for sample in part for pair in sample.items()]
        write_tar(folder / name.format(number), pairs)
    return folder
