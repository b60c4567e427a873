"""Errors that users can fix, such as a wrong argument, flag or file.

Every error that this package raises on purpose is an instance of `UserError`
and of a built-in error such as ValueError. The command line prints these errors
in one line. Any other exception is a bug and is printed with its traceback.
"""

import importlib


class UserError(Exception):
    """An error that the user can fix. The message explains how."""


class ArgumentError(UserError):
    """An argument, a flag or the content of a file is wrong.

    Args:
        argument: name of the argument, or a plain message if it is the only
            value passed.
        expected: requirement that starts with a verb, such as `be above 0`.
        received: received value, usually as `argument=value`.
        advice: sentence that explains how to fix the error.
    """

    # With this `__init__`, a `tf.function` re-raises an exception of the same
    # class, with the line of the call in the message.
    __init__ = Exception.__init__

    @property
    def args(self):
        """A tuple of the message alone, from which Keras rebuilds the error."""
        return (str(self),)

    @args.setter
    def args(self, values):
        UserError.args.__set__(self, values)

    @property
    def fields(self):
        """(argument, expected, received, advice), or () for a plain message."""
        fields = UserError.args.__get__(self)
        return fields if len(fields) > 2 else ()

    def __str__(self):
        if not self.fields:
            return super().__str__()
        argument, expected, received, *advice = self.fields
        message = f"`{argument}` must {expected}. Received: {received}."
        return " ".join([message, *filter(None, advice)])

    @property
    def argument(self):
        """The name of the argument, or None if the error has only a message."""
        return self.fields[0] if self.fields else None


class InputError(ArgumentError, ValueError):
    """An argument has an invalid value."""


class InputTypeError(ArgumentError, TypeError):
    """An argument has the wrong type."""


class MissingFileError(ArgumentError, FileNotFoundError):
    """A file or folder does not exist."""


class ExistingFileError(ArgumentError, FileExistsError):
    """A file or folder that should be created already exists."""


class NotAFileError(ArgumentError, IsADirectoryError):
    """A path is a folder, not a file."""


class FileError(UserError, OSError):
    """The system cannot read or write a file."""


class MissingPackageError(UserError, ModuleNotFoundError):
    """A package is not installed. The message contains the install command."""


class UnreachableError(UserError, ConnectionError):
    """A server does not respond."""


def import_extra(extra, module):
    """Imports a module that requires the optional extra `tbnets[extra]`.

    If the import fails, the ImportError contains the install command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"The `{extra}` extra must be installed. Received: no {module} "
            f'({error}). Run: pip install "tbnets[{extra}]".',
            name=module.partition(".")[0],
        ) from error


def check_choice(name, value, known):
    """Raises ValueError unless `known` contains `value`."""
    if value not in known:
        expected = f"be one of {', '.join(known)}"
        raise InputError(name, expected, f"{name}={value!r}")


def check_kind(name, value, *kinds):
    """Raises TypeError unless `value` is an instance of one of the `kinds`."""
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        received = f"one {type(value).__name__}"
        if isinstance(value, type):
            received = f"the class {value.__name__} itself"
        raise InputTypeError(name, f"be a {names}", received)
