"""The pipeline of `tbnets embed`, which writes rows to Parquet files.

A checksum of a photo's id selects its file. A file appears only when it is
complete, so that a runner may repeat any work, and a second run finds the rows
of the first.
"""

import concurrent.futures
import logging
import os
import tempfile
import threading
import uuid
import zlib

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystems import FileSystems
from apache_beam.options import pipeline_options
from pyarrow import parquet

from tbnets import files
from tbnets.beam.transforms import Encode, sha256
from tbnets.data import pictures
from tbnets.data.archives import is_photo_name
from tbnets.data.store import vectors
from tbnets.data.store.reader import check_same
from tbnets.errors import MissingFileError, UserError
from tbnets.progress import progress_bar
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE
from tbnets.startup import usable_cores

PHOTOS_PER_FILE = 500
"""A killed process loses at most the embeddings of this many photos."""
FILES_OF_A_CLUSTER = 1000
"""Number of files if only the workers of a cluster list the photos."""
READS_AT_ONCE = 8
_FILES = f"photos-*-of-*{vectors.SUFFIX}"


class Run:
    """A run of `tbnets embed`.

    Args:
        load: function that loads the network, as in `transforms.Encode`.
        output: folder of the files.
        known: folder of an earlier output whose rows are reused, or "".
        words: options of Beam, as on a command line.
    """

    def __init__(self, load, output, known="", words=()):
        self.load, self.folders = load, [output, *filter(None, [known])]
        standard = pipeline_options.StandardOptions(words)
        self.is_direct = standard.runner in (None, "DirectRunner")
        self.threads, cores = 1, usable_cores()
        if self.is_direct:
            words = [
                f"--direct_num_workers={cores}",
                "--direct_running_mode=multi_processing",
                # Otherwise, Beam downloads and starts Prism, a runner that has
                # one worker process.
                "--allow_unsafe_triggers",
                "--default_sdk_harness_log_level=ERROR",
                *words,
            ]
            direct = pipeline_options.DirectOptions(words)
            self.threads = max(1, cores // (direct.direct_num_workers or cores))
        self.pipeline = beam.Pipeline(
            options=pipeline_options.PipelineOptions(words)
        )

    def find(self, place):
        """Returns (photos, count): the photos that match a pattern.

        `photos` is a `PCollection` of (id, path). A `place` without "*" is a
        folder. In a cluster, `count` is None, because the workers list the
        photos.
        """
        pattern = place if "*" in place else f"{place.rstrip('/')}/**"
        paths = _match("photos", pattern, None if self.is_direct else 1)
        count = sum(map(is_photo_name, paths)) if self.is_direct else None
        matches = self.pipeline | fileio.MatchFiles(pattern)
        photos = matches | "Name" >> beam.Map(_with_id, pattern)
        return photos | beam.Filter(lambda pair: is_photo_name(pair[1])), count

    def write(self, photos, count):
        """Writes the files of photos, and returns the number of files.

        `photos` is a `PCollection` of (id, path). If `count`, the number of
        photos, is not None, the progress is shown.
        """
        encoder = self.load()
        encoder.rows([("", b"")])  # A network that takes no photos ends here.
        for folder in self.folders[1:]:
            _match("known", f"{folder}/{_FILES}", 1)
        default = -(-count // PHOTOS_PER_FILE) if count else FILES_OF_A_CLUSTER
        num_files = self._earlier_files(encoder.made_by) or default
        if not FileSystems.exists(self.folders[0]):
            FileSystems.mkdirs(self.folders[0])
        with tempfile.NamedTemporaryFile() as progress:
            counter = progress.name if self.is_direct else ""
            work = _Write(self, num_files, counter)
            # A file without photos is written, too: it may replace a file.
            numbers = [(number, None) for number in range(num_files)]
            numbered = photos | beam.Map(_numbered, num_files)
            groups = numbered, self.pipeline | "Files" >> beam.Create(numbers)
            groups = groups | beam.Flatten() | beam.GroupByKey()
            _ = groups | "Write" >> beam.ParDo(work)
            if self.is_direct:
                _run_and_watch(self.pipeline, count, progress.name)
            else:
                self.pipeline.run().wait_until_finish()
        return num_files

    def _earlier_files(self, made_by):
        """Returns the number of files in the folders, or None if none exist."""
        num_files = None
        for folder in self.folders[::-1]:
            matches = FileSystems.match([f"{folder}/{_FILES}"], [1])[0]
            for path in [each.path for each in matches.metadata_list]:
                with FileSystems.open(path) as stream:
                    found = vectors.made_by_of(parquet.read_schema(stream))
                check_same(path, found, made_by)
                num_files = int(path.rpartition("-of-")[2].split(".")[0])
        return num_files


def _match(argument, pattern, limit=None):
    """Returns the paths that match the pattern that an argument names."""
    [matches] = FileSystems.match([pattern], [limit])
    if not matches.metadata_list:
        raise MissingFileError(
            argument,
            "name existing files",
            f"{argument}={pattern}, without files",
            "Check the path.",
        )
    return [each.path for each in matches.metadata_list]


def _with_id(match, pattern):
    folder = pattern.partition("*")[0].rpartition("/")[0]
    return match.path[len(folder) :].lstrip("/"), match.path


def _numbered(photo, num_files):
    return zlib.crc32(photo[0].encode()) % num_files, photo


def _run_and_watch(pipeline, count, progress):
    """Runs a pipeline on this machine, and shows its progress.

    The size of the file `progress` is the number of photos that are done. Beam
    waits forever for a worker process that was killed; only a thread of Beam
    then raises an error.
    """
    errors, hook = [], threading.excepthook
    threading.excepthook = lambda report: errors.append(report.exc_value)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    thread = threading.Thread(target=pipeline.run, daemon=True)
    thread.start()
    try:
        with progress_bar(count, "embedding", " photos") as bar:
            while thread.is_alive() and not errors:
                thread.join(0.5)
                bar.update(os.path.getsize(progress) - bar.n)
    finally:
        threading.excepthook = hook
    if errors:
        # An error in a worker process has its traceback as text, and an error
        # of a lost connection has no text.
        text = "\n".join(map(str, errors)).strip()
        lines = ["a worker process ended", *text.splitlines()]
        raise UserError(
            f"The pipeline stopped: {lines[-1]}. Run the command again: it "
            "computes the photos that are missing."
        ) from errors[0]


class _Write(Encode):
    """Writes a file from its number and its photos, (id, path) pairs."""

    def __init__(self, run, num_files, progress):
        super().__init__(run.load, run.threads)
        self.folders, self.num_files = run.folders, num_files
        self.progress = progress

    def process(self, group):
        number, photos = group
        photos, rows, known = sorted(filter(None, photos)), [], {}
        name = f"photos-{number:05d}-of-{self.num_files:05d}{vectors.SUFFIX}"
        paths = [FileSystems.join(folder, name) for folder in self.folders]
        for path in filter(FileSystems.exists, paths[::-1]):
            known |= _read_rows(path)
        with concurrent.futures.ThreadPoolExecutor(READS_AT_ONCE) as pool:
            for start in range(0, len(photos), PHOTO_BATCH_SIZE):
                batch = photos[start : start + PHOTO_BATCH_SIZE]
                rows += self._rows(pool.map(_read_photo, batch), known)
                if self.progress:
                    with open(self.progress, "ab") as file:
                        file.write(bytes(len(batch)))
        rows.sort(key=lambda row: row["id"])
        dim, made_by = self.encoder.dim, self.encoder.made_by
        _write_file(
            paths[0], lambda file: vectors.write_rows(file, rows, dim, made_by)
        )

    def _rows(self, batch, known):
        rows, new = [], []
        for key, content, status in batch:
            if status:
                rows.append(self.encoder.row(key, content, None, status))
            elif row := known.get((key, sha256(content))):
                rows.append(row)
            else:
                new.append((key, content))
        return rows + self.encoder.rows(new)


def _read_rows(path):
    """Returns {(id, digest): row} of a file, without broken photos."""
    with FileSystems.open(path) as stream:
        table = parquet.read_table(stream)
    rows = table.drop_columns(["embedding"]).to_pylist()
    return {
        (row["id"], row["sha256"]): {**row, "embedding": vector}
        for row, vector in zip(rows, vectors.matrix_of(table))
        if not row["status"]
    }


def _read_photo(photo):
    """Returns (id, content, status) of a photo, an (id, path) pair."""
    key, path = photo
    try:
        if "://" not in path:
            return key, pictures.read_file(path), ""
        with FileSystems.open(path) as stream:
            return key, stream.read(), ""
    except pictures.BrokenImageError as error:
        return key, b"", error.reason
    except OSError as error:
        return key, b"", f"cannot be read: {error}"


def _write_file(path, write):
    if "://" not in path:
        files.write_atomically(path, write)
        return
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    with FileSystems.create(partial) as file:
        write(file)
    FileSystems.rename([partial], [path])
