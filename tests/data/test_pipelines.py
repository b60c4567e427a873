"""Tests of how `tf.data` reads."""

import pathlib
import re

import pytest
import tensorflow as tf

import tbnets
from tbnets.data import batches

PACKAGE = pathlib.Path(tbnets.__file__).parent
MADE = r"tf\.data\.Dataset\.(?:from|range|list)\w*\("
"""Where a pipeline begins, as the package writes it."""


def test_what_is_untuned_has_the_same_elements():
    dataset = batches.untuned(tf.data.Dataset.range(3).prefetch(1))
    assert dataset.options().autotune.enabled is False
    assert list(dataset.as_numpy_iterator()) == [0, 1, 2]


def test_other_options_stay():
    options = tf.data.Options()
    options.deterministic = True
    dataset = batches.untuned(tf.data.Dataset.range(3).with_options(options))
    assert dataset.options().deterministic


makers = [
    path.relative_to(PACKAGE).as_posix()
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(MADE, path.read_text()) and path.stem != "pipelines"
]


def test_pipelines_are_found():
    assert "data/batches.py" in makers
    assert "features/extraction.py" in makers


@pytest.mark.parametrize("name", makers)
def test_no_pipeline_is_tuned(name):
    source = (PACKAGE / name).read_text()
    assert "untuned(" in source
    assert "AUTOTUNE" not in source
