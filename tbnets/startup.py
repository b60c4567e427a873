"""How a tool starts: a quiet TensorFlow, memory that is kept, plain errors."""

import contextlib
import ctypes
import logging as py_logging
import os
import pathlib
import platform
import sys
import tempfile
import warnings

from absl import app
from absl import flags
from absl import logging


@contextlib.contextmanager
def quiet_tensorflow():
    """Hides what native libraries print while TensorFlow is imported.

    TensorFlow's libraries write to file descriptor 2 before any log level
    applies (missing CUDA drivers, factories registered twice), and
    tensorflow-addons warns about its end of life. Inside this context both
    go to a temporary file; when the block raises, the text is shown, so a
    broken installation still explains itself. Set `TF_CPP_MIN_LOG_LEVEL` to
    0, 1 or 2 to see everything.

    Example:
        with startup.quiet_tensorflow():
            import tensorflow as tf
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3") != "3":
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as sink, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(sink.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            if failed:
                sink.seek(0)
                sys.stderr.write(sink.read().decode(errors="replace"))


_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Parameters of `mallopt` in glibc's malloc.h."""


def keep_freed_memory():
    """Lets the C library reuse big blocks instead of returning them.

    TensorFlow allocates each big tensor anew. glibc maps such a block from
    the system and gives it back when the tensor goes, so each step pays for
    fresh pages again: a third of the time of a training step on features.
    What is freed now stays with the process, up to 2 GiB, for the next step.
    All threads share one arena, as those of threads are too small for big
    blocks. Nothing happens where there is no glibc, or where the environment
    sets its `MALLOC_` variables.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if chosen or platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_ARENA_MAX, 1)


def _is_for_the_user(error):
    """Tells an error this package raised from one that is a bug."""
    if isinstance(error, OSError):
        return True
    frame = error.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    raised_in = pathlib.Path(frame.tb_frame.f_code.co_filename).resolve()
    package = pathlib.Path(__file__).resolve().parent
    tools = pathlib.Path(sys.argv[0]).resolve().parent
    return package in raised_in.parents or tools in raised_in.parents


def run_tool(main):
    """Runs a tool's `main(argv)` under absl; ends on a plain error line.

    What a user can mend (an `OSError`, or a `ValueError` raised in this
    package, which says what to change) is printed without a traceback, and
    the exit code is 1. Any other exception is a bug and keeps its traceback.
    Ctrl-C exits with 130, as a shell expects.
    """
    keep_freed_memory()

    def guarded(argv):
        # TensorFlow and Keras inform and warn through these two; a tool's
        # own words are printed.
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.ERROR)
        py_logging.getLogger("tensorflow").setLevel(py_logging.ERROR)
        try:
            return main(argv)
        except (ValueError, OSError) as error:
            if not _is_for_the_user(error):
                raise
            unnamed = isinstance(error, OSError) and not error.filename
            sys.exit(f"error: {unnamed and error.strerror or error}")
        except KeyboardInterrupt:
            sys.exit(130)

    app.run(guarded)
