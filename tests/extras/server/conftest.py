"""Tiny models that the tests of servers share."""

import pytest

from tbnets.extras.server.models import Models
from tests.extras.server.tiny_models import write_version


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    """Returns the folder of versions 1 and 2: copy what is to be changed."""
    folder = tmp_path_factory.mktemp("versions")
    for number in (1, 2):
        write_version(folder, number)
    return folder


@pytest.fixture(scope="module")
def told():
    """Returns the lines that `models` tells."""
    return []


@pytest.fixture(scope="module")
def models(versions, told):
    """Serves the newest of these versions, which is called `stable`, too."""
    labels = {"tiny": {"stable": 2}}
    models = Models({"tiny": versions}, labels=labels, tell=told.append)
    models.start()
    yield models
    models.close()
