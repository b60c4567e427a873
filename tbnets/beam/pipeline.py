"""The pipeline of `tbnets embed`, which writes rows to Parquet files.

A checksum of a photo's id selects its file. A file appears only when it is
complete, so that a runner may repeat any work, and a second run finds the rows
of the first.
"""

import logging
import os
import threading
import time
import uuid
import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions

from tbnets import files
from tbnets.beam.transforms import Encode
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
MOST_FILES = 1000
"""More photos are written to as many files, which are larger."""
_FILES = f"photos-*-of-*{vectors.SUFFIX}"


def find_photos(pattern):
    """Returns (transform, count): the transform lists photos, (id, path) pairs.

    A `pattern` without "*" is a folder. `count` is the number of photos that
    match the pattern. It is at most the number that fills `MOST_FILES`, because
    listing more would take long.
    """
    if "*" not in pattern:
        pattern = f"{pattern.rstrip('/')}/**"
    [matches] = FileSystems.match([pattern], [MOST_FILES * PHOTOS_PER_FILE])
    count = sum(is_photo_name(file.path) for file in matches.metadata_list)
    if not count:
        raise MissingFileError(
            "photos", "match photos", pattern, "Check the path."
        )
    folder = pattern.partition("*")[0].rpartition("/")[0]
    photos = (
        fileio.MatchFiles(pattern)
        | beam.Filter(lambda file: is_photo_name(file.path))
        | beam.Map(lambda file: (os.path.relpath(file.path, folder), file.path))
    )
    return photos, count


def write(photos, count, load, output, known="", words=()):
    """Writes the files of photos, and returns the number of files.

    Args:
        photos: transform that returns (id, path) pairs.
        count: number of photos.
        load: function that loads the network, as in `transforms.Encode`.
        output: folder of the files.
        known: folder of an earlier output whose rows are reused, or "".
        words: options of Beam, as on a command line.
    """
    num_files = min(MOST_FILES, -(-count // PHOTOS_PER_FILE))
    encoder, folders = load(), [*filter(None, [known]), output]
    encoder.try_images([b""])  # A network that takes no photos ends here.
    for folder in folders:
        earlier = _files_in(folder)
        if folder == known and not earlier:
            raise MissingFileError(
                "known", "name an earlier output", known, "Check the path."
            )
        for file in earlier[:1]:
            _read_earlier(file.path, encoder.made_by)
            num_files = int(file.path.split("-of-")[-1].split(".")[0])
    if not FileSystems.exists(output):
        FileSystems.mkdirs(output)
    pipeline, threads = _begin(words)
    by_id = beam.WithKeys(lambda x: zlib.crc32(x[0].encode()) % num_files)
    # A file without photos is written, too: it may replace a file.
    empty = beam.Create([(number, None) for number in range(num_files)])
    photos = pipeline | photos | by_id, pipeline | "Files" >> empty
    work = beam.ParDo(_Write(load, threads), folders, num_files)
    _ = photos | beam.Flatten() | beam.GroupByKey() | "Write" >> work
    _run_and_watch(pipeline, output, num_files)
    return num_files


def _begin(words):
    """Returns (pipeline, number of TensorFlow threads of a process)."""
    cores = usable_cores()
    words = [
        f"--direct_num_workers={cores}",
        "--direct_running_mode=multi_processing",
        # Otherwise, Beam downloads and starts Prism, a runner that has one
        # worker process.
        "--allow_unsafe_triggers",
        "--default_sdk_harness_log_level=ERROR",
        *words,
    ]
    options = DirectOptions(words)
    threads = max(1, cores // (options.direct_num_workers or cores))
    return beam.Pipeline(options=options), threads


def _files_in(folder):
    return FileSystems.match([f"{folder}/{_FILES}"])[0].metadata_list


def _run_and_watch(pipeline, output, num_files):
    """Runs a pipeline, and shows how many files it has written.

    On one machine, Beam waits forever for a worker process that was killed;
    only a thread of Beam then raises an error. So this function watches the
    errors of all threads, until the process ends.
    """

    def run():
        pipeline.run().wait_until_finish()

    errors, start = [], time.time()
    threading.excepthook = lambda report: errors.append(report.exc_value)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    with progress_bar(num_files, "embedding", "file") as bar:
        while thread.is_alive() and not errors:
            thread.join(1)
            times = [x.last_updated_in_seconds for x in _files_in(output)]
            bar.update(sum(time >= start for time in times) - bar.n)
    if errors:
        # An error in a worker process has its traceback as text, and an error
        # of a lost connection has no text.
        lines = ["a worker process ended", *str(errors[0]).splitlines()]
        raise UserError(
            f"The pipeline stopped: {lines[-1]}. Run the command again: it "
            "computes the photos that are missing."
        ) from errors[0]


class _Write(Encode):
    """Writes a file from its number and its photos, (id, path) pairs."""

    def process(self, group, folders, num_files):
        number, photos = group
        name = f"photos-{number:05d}-of-{num_files:05d}{vectors.SUFFIX}"
        paths = [FileSystems.join(folder, name) for folder in folders]
        dim, made_by = self.encoder.dim, self.encoder.made_by
        known, rows, photos = {}, [], sorted(filter(None, photos))
        for path in filter(FileSystems.exists, paths):
            known |= _read_earlier(path, made_by)
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(photos), PHOTO_BATCH_SIZE):
                batch = photos[start : start + PHOTO_BATCH_SIZE]
                batch = [(key, pool.submit(_read, path)) for key, path in batch]
                rows += self.rows(batch, known, Future.result)
        _write_file(
            paths[-1], lambda file: vectors.write_rows(file, rows, dim, made_by)
        )


def _read_earlier(path, made_by):
    """Returns {digest: vector} of a file by the same network."""
    with FileSystems.open(path) as stream:
        other, digests, rows, _ = vectors.read_file(path, stream, "sha256")
    check_same(path, other, made_by)
    return dict(zip(digests, rows))


def _read(path):
    if "://" not in path:
        return pictures.read_file(path)
    with FileSystems.open(path) as stream:
        return stream.read()


def _write_file(path, write):
    if "://" not in path:
        return files.write_atomically(path, write)
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    with FileSystems.create(partial) as file:
        write(file)
    FileSystems.rename([partial], [path])
