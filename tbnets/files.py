"""Writing files so that nothing already saved is lost."""

import json
import os
import pathlib
import tempfile


def write_atomically(path, write):
    """Writes a file so that `path` holds the old or the new one, never half.

    Args:
        path: file to write; its folder must exist.
        write: function of an open binary file.

    Raises:
        OSError: naming `path`, when it can not be written (disk full, no
            permission). What was at `path` is still there.
    """
    path = pathlib.Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=path.name + ".", delete=False
        ) as file:
            temporary = file.name
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        kept = "what it held before is unharmed" if path.exists() else "no file"
        raise OSError(
            error.errno,
            f"{path} could not be written: {error.strerror}; {kept}. "
            "Free some space or choose another --run_dir",
        ) from error


def write_json(path, value):
    """Writes `value` as indented JSON, atomically."""
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
