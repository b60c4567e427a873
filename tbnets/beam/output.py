"""Writes the rows of photos to Parquet files that later runs complete.

A checksum of a photo's id selects its file. A file appears only when it is
complete, so that a runner may repeat any work, and a second run finds the rows
of the first.
"""

import collections
import concurrent.futures
import uuid
import zlib
from typing import Any, NamedTuple

import numpy as np

from tbnets import files
from tbnets.beam.transforms import Encode, beam, row_of, sha256
from tbnets.data import pictures
from tbnets.data.store import vectors
from tbnets.errors import import_extra
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE

filesystems = import_extra("beam", "apache_beam.io.filesystems").FileSystems
parquet = import_extra("data", "pyarrow.parquet")

READS_AT_ONCE = 8
"""Number of photos read in parallel, while the batch before is computed."""


class Output(NamedTuple):
    """The files to write, and the earlier files whose rows are reused."""

    folder: str
    known: str
    num_files: int
    progress: str = ""

    def name(self, number: int) -> str:
        """Returns the name of a file."""
        return f"photos-{number:05d}-of-{self.num_files:05d}{vectors.SUFFIX}"


class WriteVectors(beam.PTransform):
    """Computes and writes the rows of photos, given as (id, path) pairs.

    Args:
        network: a `Model` or a `Network`.
        output: an `Output`.
        threads: as in `EmbedPhotos`.
    """

    def __init__(self, network: Any, output: Output, threads: int) -> None:
        super().__init__()
        self.network, self.output, self.threads = network, output, threads

    def expand(self, photos):
        """Groups the photos by file, and writes the files."""
        # A file without photos is written, too: it may replace an earlier one.
        numbers = range(self.output.num_files)
        all_files = photos.pipeline | beam.Create([(x, None) for x in numbers])
        numbered = photos | beam.Map(_numbered, self.output.num_files)
        groups = (numbered, all_files) | beam.Flatten() | beam.GroupByKey()
        work = _Write(self.network, self.threads, self.output)
        return groups | "Write" >> beam.ParDo(work)


def _numbered(photo, num_files):
    return zlib.crc32(photo[0].encode()) % num_files, photo


class _Write(Encode):
    """Writes a file from its number and its photos, (id, path) pairs."""

    def __init__(self, network, threads, output):
        super().__init__(network, threads)
        self.output = output

    def process(self, group):
        number, photos = group
        photos, output = sorted(filter(None, photos)), self.output
        name = output.name(number)
        path = filesystems.join(output.folder, name)
        before = _read_rows(path, self.encoder.made_by)
        known = before or {}
        if output.known:
            earlier = filesystems.join(output.known, name)
            known = (_read_rows(earlier, self.encoder.made_by) or {}) | known
        rows = []
        for batch in _read_ahead(photos):
            rows += self._new_rows(batch, known)
            self._report(batch)
        rows.sort(key=lambda row: row["id"])
        if before is None or _states(rows) != _states(before.values()):
            dim, made_by = self.encoder.dim, self.encoder.made_by
            _write_file(path, vectors.table_of(rows, dim, made_by))

    def _new_rows(self, batch, known):
        rows, new, nothing = [], [], np.zeros(self.encoder.dim, np.float32)
        counts = collections.Counter()
        for key, content in batch:
            row = known.get(key)
            if isinstance(content, str):  # The reason why there is none.
                rows.append(row_of(key, "", content, nothing))
            elif row and _is_reused(row, content):
                rows.append(row)
                counts["known"] += 1
            else:
                new.append((key, content))
                counts["computed"] += 1
        rows += self.encoder.rows(new)
        counts["failed"] = sum(bool(row["status"]) for row in rows)
        for name, count in counts.items():
            beam.metrics.Metrics.counter("tbnets", name).inc(count)
        return rows

    def _report(self, batch):
        if self.output.progress:
            with open(self.output.progress, "ab") as file:
                file.write(bytes(len(batch)))


def _is_reused(row, content):
    is_same = row["sha256"] == sha256(content)
    return is_same and not pictures.is_cured(row["status"])


def _states(rows):
    return [(row["id"], row["sha256"], row["status"]) for row in rows]


def _read_rows(path, made_by):
    """Returns {id: row} of a file, or None if another network made it."""
    if not filesystems.exists(path):
        return None
    with filesystems.open(path) as stream:
        table = parquet.read_table(stream)
    if vectors.made_by_of(table.schema) != made_by:
        return None
    names = ("id", "sha256", "status")
    columns = [table[name].to_pylist() for name in names]
    values = zip(*columns, vectors.matrix_of(table))
    return {key: row_of(key, *others) for key, *others in values}


def _read_ahead(photos):
    """Yields batches of (id, content or reason), and reads the next batch."""
    starts = range(0, len(photos), PHOTO_BATCH_SIZE)
    batches = [photos[start : start + PHOTO_BATCH_SIZE] for start in starts]
    with concurrent.futures.ThreadPoolExecutor(READS_AT_ONCE) as pool:
        reading = None
        for batch in [*batches, []]:
            following = pool.map(_read, batch)
            if reading is not None:
                yield [*reading]
            reading = following


def _read(photo):
    """Returns (id, content), or (id, reason) of a file that is not readable."""
    key, path = photo
    return key, _content(path)


def _content(path):
    try:
        if "://" not in path:
            return pictures.read_file(path)
        with filesystems.open(path) as stream:
            return stream.read()
    except pictures.BrokenImageError as error:
        return error.reason
    except OSError as error:
        return f"cannot be read: {error}"


def _write_file(path, table):
    if "://" not in path:
        files.write_atomically(
            path, lambda file: parquet.write_table(table, file)
        )
        return
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    with filesystems.create(partial) as file:
        parquet.write_table(table, file)
    filesystems.rename([partial], [path])
