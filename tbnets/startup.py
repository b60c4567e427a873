"""How a tool starts: a quiet TensorFlow, memory that is kept, plain errors."""

import contextlib
import ctypes
import errno
import gc
import importlib.abc
import importlib.machinery
import logging as py_logging
import os
import pathlib
import platform
import re
import shlex
import signal
import sys
import tempfile
import threading
import warnings

from absl import logging

from tbnets.errors import UserError

# What this process computes on: how many cores, and whether on them alone.


def usable_cores():
    """Returns how many cores the process may use, at least 1.

    A container or `taskset` may allow it fewer than the machine has.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1


def no_accelerator():
    """Tells whether TensorFlow has CPUs alone. It starts its devices."""
    import tensorflow as tf  # Most of those who ask for cores do without.

    devices = tf.config.list_physical_devices()
    return all(device.device_type == "CPU" for device in devices)


_importing = threading.RLock()


@contextlib.contextmanager
def quiet_tensorflow():
    """Hides what native libraries print while TensorFlow is imported.

    TensorFlow's libraries write to file descriptor 2 before any log level
    applies (missing CUDA drivers, factories registered twice), and
    tensorflow-addons warns about its end of life. Inside this context both
    go to a temporary file; when the block raises, the text is shown, so a
    broken installation still explains itself. Set `TF_CPP_MIN_LOG_LEVEL` to
    0, 1 or 2 to see everything.

    Threads wait for each other here: the descriptor is the process's, and
    where two begin to import TensorFlow and Keras, which import each other,
    both fail. Nor does the garbage collector run, for which imports, a
    million objects that stay, are a seventh of their time.

    Example:
        with startup.quiet_tensorflow():
            import tensorflow as tf
    """
    heard = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3") != "3"
    heard = heard or sys.stderr is None  # As in a program without a terminal.
    hidden = contextlib.nullcontext() if heard else _hidden()
    with _importing, _uncollected(), hidden:
        yield


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    """Imports TensorFlow within `quiet_tensorflow`, whoever imports it first.

    A command may import it in any function, so that no list of places would
    stay complete.
    """

    def find_spec(self, fullname, path, target=None):
        """Finds TensorFlow as usual; its loader then runs quietly."""
        if fullname != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_quietly(module):
                with quiet_tensorflow():
                    execute(module)

            spec.loader.exec_module = execute_quietly
        return spec


@contextlib.contextmanager
def _uncollected():
    """Lets the garbage collector rest."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _hidden():
    """Hides what is printed and warned of; shows it if the block raises."""
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


def most_arenas(num_cores):
    """Returns how many arenas malloc may have; None for glibc's own choice.

    A thread's own arena returns blocks of more than 64 MiB whatever is set,
    so all threads share one. They then wait for each other to allocate, which
    cost nothing on two cores and has not been measured on many.

    Args:
        num_cores: number of cores that the process may use.
    """
    return 1 if num_cores <= 4 else None


def keep_freed_memory():
    """Lets the C library reuse big blocks instead of returning them.

    TensorFlow allocates each big tensor anew. glibc maps such a block from
    the system and gives it back when the tensor goes, so each step pays for
    fresh pages again: a third of the time of a training step on features.
    What is freed now stays with the process, up to 2 GiB, for the next step.
    On few cores all threads share one arena, see `most_arenas`. Nothing
    happens where there is no glibc, or where the environment sets its
    `MALLOC_` variables.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if chosen or platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    if arenas := most_arenas(usable_cores()):
        mallopt(_M_ARENA_MAX, arenas)


_KERNELS = "TF_ENABLE_ONEDNN_OPTS"


def choose_kernels(processor="/proc/cpuinfo"):
    """Lets TensorFlow compute by oneDNN's kernels, before it is imported.

    TensorFlow takes them by itself where a processor has instructions for
    neural networks. With AVX2 and FMA alone they are faster too, a train step
    by a fifth or more; they sum in another order, so that all results differ
    in their last bits. Nothing happens on other processors, where TensorFlow
    is there already, or where the environment says by TF_ENABLE_ONEDNN_OPTS
    what is wanted: 0 for TensorFlow's own kernels. Processes that this one
    starts compute as it does.

    Args:
        processor: file that tells what the processor can do, of Linux.
    """
    if _KERNELS in os.environ or "tensorflow" in sys.modules:
        return
    with contextlib.suppress(OSError):
        told = pathlib.Path(processor).read_text("utf-8")
        if {"avx2", "fma"} <= {*told.split()}:
            os.environ[_KERNELS] = "1"


def kernels():
    """Returns in words whose kernels the environment asks for."""
    names = {"1": "oneDNN", "0": "TensorFlow"}
    return names.get(os.environ.get(_KERNELS, ""), "TensorFlow's choice")


_BUG = (
    "This is a bug in tbnets. Please report it, with the command and all of "
    "the lines above."
)
# These come without a file's name, from a write that was under way.
_OF_THE_SYSTEM = (errno.ENOSPC, errno.EDQUOT)


def is_for_the_user(error):
    """Tells an error that a user can mend from one that is a bug.

    For the user is a `UserError`, which says what to change, and what the
    system says of a file. Anything else was not foreseen.

    Args:
        error: a caught exception.

    Returns:
        bool.
    """
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is not None or error.errno in _OF_THE_SYSTEM:
            return True
    return isinstance(error, UserError)


def _say(error):
    """Returns an error's own words, without numbers around them."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            return error.strerror
        return f"{error.filename}: {error.strerror}. Check this path."
    return str(error)


def _print_bug(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, Exception):
        sys.stderr.write(f"\n{_BUG}\n")


_interrupted = threading.Event()


def _interrupt(*_):
    _interrupted.set()
    raise KeyboardInterrupt


def raise_if_interrupted():
    """Raises KeyboardInterrupt where one came and was lost.

    Python raises it wherever the main thread is, which may be a destructor
    or a library's `except:` that drops it. Work that takes long asks here
    now and then, in a program that `run` runs.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts():
    """Raises KeyboardInterrupt in the place of an error that one became.

    TensorFlow tells of one that comes while it makes a tensor as of a
    TypeError.
    """
    try:
        yield
    except Exception as error:
        if _interrupted.is_set():
            raise KeyboardInterrupt from error
        raise


_TOOL = re.compile(r"(?:python )?tools/(\w+)\.py")


def spoken(text):
    """Returns a text with its commands as this process was started by one.

    Texts name tools of a clone, `python tools/query.py`; where the package
    was installed the same is `tbnets query`.
    """
    return _TOOL.sub(r"tbnets \1", text) if _is_installed() else text


def typed():
    """Returns the command that started this process, as it was typed."""
    program = "tbnets" if _is_installed() else sys.argv[0]
    return shlex.join([program, *sys.argv[1:]])


def _is_installed():
    """Tells whether this process is the script that pip installs."""
    return pathlib.Path(sys.argv[0]).stem == "tbnets"


def run(work):
    """Runs a program; ends the process, on a plain error line if it must.

    What a user can mend (see `is_for_the_user`) is printed without a
    traceback, and the exit code is 1. Any other exception keeps its
    traceback, and a line says that it is a bug. Ctrl-C exits with 130, as a
    shell expects, and without a word where nobody reads on.

    Args:
        work: function () -> the exit code, or None.
    """
    keep_freed_memory()
    choose_kernels()
    sys.meta_path.insert(0, _QuietTensorFlow())
    sys.excepthook = _print_bug
    signal.signal(signal.SIGINT, _interrupt)
    # TensorFlow and Keras inform and warn through these two; a tool's own
    # words are printed.
    logging.set_verbosity(logging.ERROR)
    py_logging.getLogger("tensorflow").setLevel(py_logging.ERROR)
    try:
        with interrupts():
            code = work()
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # Who reads has enough: `tbnets --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        if not is_for_the_user(error):
            raise
        sys.exit(spoken(f"error: {_say(error)}"))
    except KeyboardInterrupt:
        sys.exit(130)
