"""SavedModels that several calls of a verb ask."""

import contextlib
import functools

import pytest

from tbnets.serving import saved_files


@contextlib.contextmanager
def loaded_once():
    """Loads each SavedModel once, however often a verb is called."""
    load = functools.cache(saved_files.load_graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_files, "load_graph", load)
        yield
