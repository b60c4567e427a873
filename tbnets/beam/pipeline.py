"""Runs `tbnets embed`: finds photos, starts the pipeline, shows progress."""

import collections
import json
import logging
import os
import re
import tempfile
import threading

from tbnets.beam.output import Output, WriteVectors, filesystems, parquet
from tbnets.beam.transforms import beam
from tbnets.data.archives import is_photo_name
from tbnets.data.store import vectors
from tbnets.data.store.reader import check_same
from tbnets.errors import InputError, MissingFileError, UserError, import_extra
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores

fileio = import_extra("beam", "apache_beam.io.fileio")
pipeline_options = import_extra("beam", "apache_beam.options.pipeline_options")

_NAME = re.compile(rf"photos-\d+-of-(\d+){re.escape(vectors.SUFFIX)}")
_WILDCARD = re.compile(r"[*?\[{]")


class Runner:
    """The options of Beam, with defaults for this machine.

    Args:
        words: the options, as on a command line.

    Attributes:
        is_direct: whether the pipeline runs on this machine.
        threads: number of TensorFlow threads of a worker process.
    """

    def __init__(self, words):
        standard = pipeline_options.StandardOptions(words)
        self.is_direct = (standard.runner or "DirectRunner") == "DirectRunner"
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
        self.options = pipeline_options.PipelineOptions(words)


def list_photos(place, is_direct):
    """Returns the photos that match a pattern, as a list of (id, path).

    A `place` without wildcards is a folder. If the pipeline does not run on
    this machine, the function returns the pattern, because the workers list
    the photos.
    """
    pattern = place if _WILDCARD.search(place) else f"{place.rstrip('/')}/**"
    [matches] = filesystems.match([pattern], [None if is_direct else 1])
    paths = [each.path for each in matches.metadata_list]
    if is_direct:
        paths = filter(is_photo_name, paths)
    photos = [_with_id(path, pattern) for path in paths]
    if not photos:
        raise MissingFileError(
            "photos",
            "be a folder, archives or a pattern of photos",
            f"{place}, without photos",
            "Check the path.",
        )
    return photos if is_direct else pattern


def _with_id(path, pattern):
    folder = _WILDCARD.split(pattern)[0].rpartition("/")[0]
    return path[len(folder) :].lstrip("/"), path


def open_output(folder, known, num_files, made_by):
    """Creates the folder of an output, and returns the `Output`.

    Args:
        folder: the folder of the output.
        known: an earlier output whose rows are reused, or "".
        num_files: number of files to write, unless earlier files exist.
        made_by: description of the network, which must be that of the earlier
            files.
    """
    earlier = {}
    for argument, path in {"known": known, "output": folder}.items():
        pattern = filesystems.join(path, f"*{vectors.SUFFIX}")
        matches = filesystems.match([pattern])[0].metadata_list if path else ()
        names = [x.path for x in matches if _NAME.search(x.path)]
        if argument == "known" and path and not names:
            raise MissingFileError(
                "known",
                "be the output of an earlier tbnets embed",
                f"known={path}, without its files",
                "Check the path.",
            )
        earlier |= {int(_NAME.search(x)[1]): x for x in names}
        for name in names[:1]:
            with filesystems.open(name) as stream:
                found = vectors.made_by_of(parquet.read_schema(stream))
            check_same(name, found, json.loads(json.dumps(made_by)))
    if len(earlier) > 1:
        first, second = [*earlier.values()][:2]
        raise InputError(
            "known",
            "have as many files as the output",
            f"{first} and {second}",
            "Choose another output folder.",
        )
    if not filesystems.exists(folder):
        filesystems.mkdirs(folder)
    return Output(folder, known, next(iter(earlier), num_files))


def run(photos, network, output, runner):
    """Runs the pipeline, and returns {name: count} of photos.

    `photos` is a list of (id, path), or a pattern. `network` is a `Model` or a
    `Network`, `output` is an `Output`, and `runner` is a `Runner`.
    """
    pipeline = beam.Pipeline(options=runner.options)
    if isinstance(photos, str):
        matches = pipeline | fileio.MatchFiles(photos)
        paths = matches | beam.Map(lambda match: match.path)
        paths = paths | beam.Filter(is_photo_name)
        named = paths | beam.Map(_with_id, photos)
    else:
        named = pipeline | beam.Create(photos)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    if not runner.is_direct:
        _ = named | WriteVectors(network, output, runner.threads)
        result = pipeline.run()
        result.wait_until_finish()
        return _counts(result)
    with tempfile.NamedTemporaryFile() as progress:
        output = output._replace(progress=progress.name)
        _ = named | WriteVectors(network, output, runner.threads)
        return _counts(_watched(pipeline, len(photos), progress.name))


def _watched(pipeline, num_photos, progress):
    """Runs a pipeline on this machine and shows its progress.

    Beam waits forever for a worker process that was killed: only a thread of
    Beam reports it.
    """
    results, errors = [], []
    hook = threading.excepthook
    threading.excepthook = lambda report: errors.append(report.exc_value)

    def work():
        result = pipeline.run()
        result.wait_until_finish()
        results.append(result)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        with progress_bar(num_photos, "embedding", " photos") as bar:
            while thread.is_alive() and not errors:
                thread.join(0.5)
                bar.update(os.path.getsize(progress) - bar.n)
    finally:
        threading.excepthook = hook
    if results:
        return results[0]
    text = " ".join(filter(None, map(str, errors)))
    raise UserError(
        f"The pipeline stopped: {text.strip()}. Run the command again: it "
        "continues with the photos that are missing."
    ) from errors[0]


def _counts(result):
    counts = collections.Counter()
    for each in result.metrics().query()["counters"]:
        counts[each.key.metric.name] += each.result
    return counts
