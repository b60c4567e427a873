"""Errors that users can fix, such as a wrong argument, flag or file.

All errors that this package raises on purpose are `UserError`s. Each is also a
built-in error, so that `except ValueError` works as usual. The command line
prints a `UserError` as one line. Any other exception is a bug and keeps its
traceback.
"""

import importlib


class UserError(Exception):
    """An error that the user can fix; the message gives the change to make."""


class ArgumentError(UserError):
    """An argument, a flag or the content of a file is wrong.

    Args:
        argument: name of the argument; or the whole message, if it is the only
            value.
        expected: the requirement, a verb and its object: `be above 0`.
        received: the received value, usually `argument=value`.
        advice: what to change, a sentence.
    """

    # TensorFlow re-raises an exception with exactly this `__init__` from a
    # `tf.function`, with the place of the call added to its message.
    __init__ = Exception.__init__

    @property
    def args(self):
        """The message as a tuple, from which Keras re-raises the error."""
        return (str(self),)

    @args.setter
    def args(self, values):
        UserError.args.__set__(self, values)

    @property
    def fields(self):
        """`argument`, `expected`, `received`, `advice`; () for a message."""
        fields = UserError.args.__get__(self)
        return fields if len(fields) > 2 else ()

    def __str__(self):
        """Returns the message."""
        if not self.fields:
            return super().__str__()
        argument, expected, received, *advice = self.fields
        message = f"`{argument}` must {expected}. Received: {received}."
        return " ".join([message, *filter(None, advice)])

    @property
    def argument(self):
        """The name of the argument; None for an error with only a message."""
        return self.fields[0] if self.fields else None


class InputError(ArgumentError, ValueError):
    """An `ArgumentError` that is a ValueError."""


class InputTypeError(ArgumentError, TypeError):
    """An argument has the wrong type."""


class MissingFileError(UserError, FileNotFoundError):
    """A file or folder does not exist."""


class ExistingFileError(UserError, FileExistsError):
    """A file or folder to be written exists already."""


class NotAFileError(UserError, IsADirectoryError):
    """A folder was found instead of a file."""


class FileError(UserError, OSError):
    """The system cannot read or write a file."""


class MissingPackageError(UserError, ModuleNotFoundError):
    """A package is not installed; the message has the command to install it."""


class UnreachableError(UserError, ConnectionError):
    """A server does not respond."""


def import_extra(extra, module):
    """Imports a module that requires an optional extra of tbnets.

    Args:
        extra: name of the extra, as in `tbnets[extra]`.
        module: full name of the module.

    Raises:
        ImportError: the extra is not installed; the message has the command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"The extra `{extra}` must be installed. Received: no {module} "
            f'({error}). Run: pip install "tbnets[{extra}]".',
            name=module.partition(".")[0],
        ) from error


def check_choice(name, value, known, advice="Choose one of these."):
    """Raises ValueError, listing the known values, for any other value.

    Args:
        name: name of the argument.
        value: its value.
        known: iterable of strings.
        advice: what to change.
    """
    if value not in known:
        raise InputError(
            name,
            f"be one of {', '.join(known)}",
            f"{name}={value!r}",
            f"{advice}",
        )


def check_kind(name, value, kinds, advice):
    """Raises TypeError if a value is not of the expected class.

    Args:
        name: name of the argument.
        value: its value.
        kinds: a class, or a tuple of classes.
        advice: what to change.
    """
    if isinstance(value, kinds):
        return
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    wanted = " or ".join(kind.__name__ for kind in kinds)
    given = f"of type {type(value).__name__}"
    if isinstance(value, type):
        given = f"the class {value.__name__} itself"
    raise InputTypeError(
        name,
        f"be a {wanted}",
        f"{name} {given}",
        f"{advice}",
    )
