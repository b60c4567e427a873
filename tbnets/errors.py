"""Errors that are meant for the user, who can mend what they tell of.

Everything that this package raises on purpose about an argument, a flag or a
file is a `UserError`, and one of Python's own kinds besides, so that
`except ValueError` keeps its meaning. A tool prints a `UserError` as one line;
what it meets otherwise is a bug, and keeps its traceback.
"""

import importlib


class UserError(Exception):
    """What a user can mend; the message says what to change."""


class ArgumentError(UserError):
    """An argument, a flag or the content of a file is not as it must be.

    Args:
        argument: name of the argument; or, without the others, the message.
        expected: what it must be, a verb and its object: `be above 0`.
        received: what it is, in most cases `argument=value`.
        advice: what to change, a sentence.
    """

    # TensorFlow raises an error with this `__init__` again out of a
    # `tf.function`, as a message with the place of the call.
    __init__ = Exception.__init__

    @property
    def args(self):
        """The message alone: what Keras takes to raise the error again."""
        return (str(self),)

    @args.setter
    def args(self, values):
        UserError.args.__set__(self, values)

    @property
    def fields(self):
        """`argument`, `expected`, `received`, `advice`; () of a message."""
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
        """Name of the argument; None of an error that is a message alone."""
        return self.fields[0] if self.fields else None


class InputError(ArgumentError, ValueError):
    """An argument, a flag or the content of a file is not as it must be."""


class InputTypeError(ArgumentError, TypeError):
    """An argument is of the wrong type."""


class MissingFileError(UserError, FileNotFoundError):
    """A file or folder is not where it must be."""


class ExistingFileError(UserError, FileExistsError):
    """Something stands where a file or folder is to be written."""


class NotAFileError(UserError, IsADirectoryError):
    """A folder stands where a file must be."""


class FileError(UserError, OSError):
    """The system can not read or write a file."""


class MissingPackageError(UserError, ModuleNotFoundError):
    """A package is not installed; the message says how to."""


class UnreachableError(UserError, ConnectionError):
    """A server does not answer."""


def import_extra(extra, module):
    """Returns a module of a package that an extra brings.

    Args:
        extra: name of the extra, `tbnets[extra]`.
        module: the module, by its full name.

    Raises:
        ImportError: it is not installed; the message says how to.
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
    """Refuses a value that is not one of those there are.

    Args:
        name: what the argument is called.
        value: what was given for it.
        known: iterable of strings.
        advice: what to change.

    Raises:
        ValueError: lists those there are.
    """
    if value not in known:
        raise InputError(
            name,
            f"be one of {', '.join(known)}",
            f"{name}={value!r}",
            f"{advice}",
        )


def check_kind(name, value, kinds, advice):
    """Refuses a value of another class.

    Args:
        name: what the argument is called.
        value: what was given for it.
        kinds: a class, or a tuple of them.
        advice: what to change.

    Raises:
        TypeError: names the class that is expected and the one that is there.
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
