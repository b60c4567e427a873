"""What is quick of the program that type checkers read runs.

`tests/test_public_names.py` holds that it names every public name.
"""

import inspect

import pytest

from tests import typed_program

QUICK = ["words", "networks", "losses", "data", "trees", "measures"]


@pytest.mark.parametrize("name", QUICK)
def test_quick_parts_run(name, tmp_path):
    part = getattr(typed_program, name)
    part(*[tmp_path for _ in inspect.signature(part).parameters])
