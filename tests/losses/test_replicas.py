"""Replicas that share a batch learn of it what one device learns."""

import json

import pytest

from tests import fresh, replica_checks


@pytest.fixture(scope="module")
def raised():
    """The text of what each check raised, where it did."""
    code = "from tests import replica_checks; replica_checks.main()"
    ended = fresh.run("-c", code, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", replica_checks.CHECKS)
def test_replicas_learn_the_same_as_one_device(raised, name):
    assert name not in raised, raised[name]
