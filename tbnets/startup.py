"""Runs commands: configures TensorFlow and memory, and prints errors."""

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
import shlex
import signal
import sys
import tempfile
import threading
import warnings

from tbnets.errors import UserError


def usable_cores():
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Windows and macOS.
        return os.cpu_count() or 1


def no_accelerator():
    """Initialises TensorFlow, and returns whether it has only CPU devices."""
    import tensorflow as tf  # Slow to import.

    devices = tf.config.list_physical_devices()
    return all(device.device_type == "CPU" for device in devices)


def allow_tensor_float_32(is_allowed):
    """Sets whether a GPU may compute products of float32 tensors in TF32.

    TF32 rounds the factors to 11 significant bits. It is faster, but changes
    losses and gradients. TensorFlow allows it by default. CPUs have no TF32.
    """
    import tensorflow as tf  # Slow to import.

    tf.config.experimental.enable_tensor_float_32_execution(is_allowed)


def describe_device():
    """Returns a text such as `CPU, 2 cores` for the device of TensorFlow.

    For a GPU, the text contains its name and whether TF32 is on.
    """
    import tensorflow as tf  # Slow to import.

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return f"CPU, {usable_cores()} cores"
    details = tf.config.experimental.get_device_details(gpus[0])
    is_on = tf.config.experimental.tensor_float_32_execution_enabled()
    name = details.get("device_name", "GPU")
    return f"{name}, TF32 {'on' if is_on else 'off'}"


_importing = threading.RLock()


@contextlib.contextmanager
def quiet_tensorflow():
    """Hides the output of native libraries while TensorFlow is imported.

    These libraries write to file descriptor 2 before log levels apply. The
    output is printed only if the `with` block raises, or if
    `TF_CPP_MIN_LOG_LEVEL` is 0, 1 or 2. Only one thread at a time runs the
    block, because concurrent imports of TensorFlow and Keras fail.
    """
    is_shown = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3") != "3"
    is_shown = is_shown or sys.stderr is None  # A program without a terminal.
    with _importing, contextlib.ExitStack() as stack:
        # Garbage collection would take a seventh of the import time.
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
        if not is_shown:
            stack.enter_context(_hidden())
        yield


def prepare_tensorflow():
    """Makes a later import of TensorFlow quiet, and turns TF32 off after it.

    If TensorFlow is already imported, the function only turns TF32 off.
    """
    if "tensorflow" in sys.modules:
        allow_tensor_float_32(False)
    else:
        sys.meta_path.insert(0, _PreparedTensorFlow())


class _PreparedTensorFlow(importlib.abc.MetaPathFinder):
    """Import hook that imports TensorFlow quietly and then turns TF32 off."""

    def find_spec(self, fullname, path, target=None):
        """Returns a spec for TensorFlow, or None for other modules."""
        if fullname != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_quietly(module):
                with quiet_tensorflow():
                    execute(module)
                allow_tensor_float_32(False)

            spec.loader.exec_module = execute_quietly
        return spec


@contextlib.contextmanager
def _hidden():
    # Standard error is printed only if the block raises.
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
"""Parameters of `mallopt`, from glibc's malloc.h."""


def keep_freed_memory():
    """Makes glibc keep freed memory rather than return it to the system.

    By default, glibc maps and unmaps the memory of every large tensor, which
    takes a third of the time of a training step on features. After this call,
    the process keeps up to 2 GiB of freed memory. The call has no effect if an
    environment variable starts with `MALLOC_`, or on systems without glibc.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if chosen or platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    # The arena of a thread always returns blocks above 64 MiB to the system, so
    # all threads share one arena. This cost no time on two cores.
    if usable_cores() <= 4:
        mallopt(_M_ARENA_MAX, 1)


_KERNELS = "TF_ENABLE_ONEDNN_OPTS"


def choose_kernels(processor="/proc/cpuinfo"):
    """Enables TensorFlow's oneDNN kernels on processors with AVX2 and FMA.

    By default, TensorFlow uses these kernels only on processors with
    instructions for neural networks. The kernels speed up a training step by a
    fifth or more, but change the last bits of the results. The call has no
    effect if TensorFlow is already imported, or if TF_ENABLE_ONEDNN_OPTS is set
    (0 disables the kernels).
    """
    if _KERNELS in os.environ or "tensorflow" in sys.modules:
        return
    with contextlib.suppress(OSError):
        text = pathlib.Path(processor).read_text("utf-8")
        if {"avx2", "fma"} <= {*text.split()}:
            os.environ[_KERNELS] = "1"


def kernels():
    """Returns a name for the kernels that TF_ENABLE_ONEDNN_OPTS selects."""
    names = {"1": "oneDNN", "0": "TensorFlow"}
    return names.get(os.environ.get(_KERNELS, ""), "TensorFlow's choice")


_BUG = (
    "This is a bug in tbnets. Please report it with the command and all lines "
    "above."
)
# Errors that a write in progress raises without a file name.
_OF_THE_SYSTEM = (errno.ENOSPC, errno.EDQUOT)


def is_for_the_user(error):
    """Returns whether an exception is a `UserError` or a file system error."""
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is not None or error.errno in _OF_THE_SYSTEM:
            return True
    return isinstance(error, UserError)


def _message_of(error):
    # The error number would not help the user.
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
_is_delayed = threading.Event()


def _interrupt(*_):
    is_first = not _interrupted.is_set()
    _interrupted.set()
    if not (is_first and _is_delayed.is_set()):
        raise KeyboardInterrupt


def raise_if_interrupted():
    """Raises KeyboardInterrupt if an earlier interrupt was delayed or lost.

    A destructor or a bare `except:` may discard the exception of an interrupt.
    Long work that `run` started should call this function regularly.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def delayed_interrupt():
    """Delays the first Ctrl-C until `raise_if_interrupted` or the block's end.

    An exception that a signal raises while TensorFlow converts a tensor may end
    the process with a segmentation fault. A second Ctrl-C raises at once.
    """
    _is_delayed.set()
    try:
        yield
    finally:
        _is_delayed.clear()
    raise_if_interrupted()


@contextlib.contextmanager
def interrupts():
    """Raises KeyboardInterrupt instead of an error that an interrupt caused."""
    try:
        yield
    # TensorFlow raises a TypeError if creating a tensor is interrupted.
    except Exception as error:
        if _interrupted.is_set():
            raise KeyboardInterrupt from error
        raise


def command_line():
    """Returns this process's command line, quoted for a shell."""
    program = pathlib.Path(sys.argv[0])
    name = program.name if program.stem == "tbnets" else sys.argv[0]
    return shlex.join([name, *sys.argv[1:]])


def run(work):
    """Runs `work()`, and exits with the exit code that it returns.

    If `is_for_the_user` is true for an error, it is printed without a traceback
    and the exit code is 1. Any other exception is printed with its traceback
    and a request to report the bug. Ctrl-C exits with 130, in a block of
    `delayed_interrupt` only after its current step. If the output is a closed
    pipe, the process exits silently.
    """
    from absl import logging  # `tbnets.lite` needs no absl.

    keep_freed_memory()
    choose_kernels()
    prepare_tensorflow()
    sys.excepthook = _print_bug
    signal.signal(signal.SIGINT, _interrupt)
    # TensorFlow and Keras log through these two loggers.
    logging.set_verbosity(logging.ERROR)
    py_logging.getLogger("tensorflow").setLevel(py_logging.ERROR)
    try:
        with interrupts():
            code = work()
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # As in `tbnets --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        if not is_for_the_user(error):
            raise
        sys.exit(f"error: {_message_of(error)}")
    except KeyboardInterrupt:
        sys.exit(130)
