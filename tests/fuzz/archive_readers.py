"""Readers of photos and captions in tar archives and parquet files."""

import importlib.util

from tbnets.data import archives
from tbnets.data.captions import CaptionSource, read_captions
from tests.archives import write_tar
from tests.fuzz.reader import Reader, both_ways
from tests.photo_files import encode

PHOTO = encode(size=(4, 3))
FILES = {
    "a.jpg": PHOTO,
    "a.txt": "A dog.\nTwo dogs.",
    "folder/b.jpg": PHOTO,
    "folder/b.json": '{"caption": "A cat."}',
    "c" * 120 + ".jpg": PHOTO,
    "c" * 120 + ".cls": "sheep",
}


def _read(path):
    CaptionSource(path).splits()
    found = both_ways(lambda problems: read_captions(path, "all", problems))
    return found, [archives.read_bytes(path / x) for x in found.names]


def _reader(name, write):
    return Reader(
        lambda folder: write(folder / name),
        (name,),
        lambda folder: _read(folder / name),
    )


def _write_parquet(path):
    import pyarrow
    from pyarrow import parquet

    photos = [{"bytes": PHOTO, "path": f"{row}.jpg"} for row in range(4)]
    texts = [["A dog."], ["A cat.", "Two cats."], [], ["A bird."]]
    table = pyarrow.table({"image": photos, "captions": texts})
    parquet.write_table(table, path, row_group_size=2)


READERS = {"tar": _reader("s.tar", lambda x: write_tar(x, FILES))}
if importlib.util.find_spec("pyarrow"):
    READERS["parquet"] = _reader("p.parquet", _write_parquet)
