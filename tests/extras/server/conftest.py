"""A tiny model with two versions."""

import pytest

from tbnets.extras.server.models import Models
from tests.extras.server.tiny_models import write_version


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    """Returns the folder of versions 1 and 2, which tests must not change."""
    folder = tmp_path_factory.mktemp("versions")
    for number in (1, 2):
        write_version(folder, number)
    return folder


@pytest.fixture(scope="module")
def models(versions):
    """Serves the newest version, 2."""
    models = Models({"tiny": versions}, tell=lambda line: None)
    models.start()
    yield models
    models.close()
