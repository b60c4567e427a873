"""Requests put together, and what a bad one does to the others."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.extras.server.batching import Batching, read_parameters
from tbnets.extras.server.versions import Version
from tbnets.serving.protocol import RequestError
from tests.refusals import refused

OPTIONS = Batching(
    max_batch_size=8,
    batch_timeout_micros=300_000,
    num_batch_threads=1,
    allowed_batch_sizes=(1, 4, 8),
)


@pytest.fixture(scope="module")
def version(versions):
    return Version(1, versions / "1", batching=OPTIONS)


def ask(version, requests):
    """Asks all at once; returns `rows` of each, or the error."""

    def one(numbers):
        inputs = {"numbers": np.array(numbers, np.float32)}
        try:
            return version.predict("together", inputs)["rows"].tolist()
        except RequestError as error:
            return str(error)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def test_requests_are_answered_together_each_with_its_rows(version):
    # 3 + 2 + 3 rows fill the batch of 8.
    found = ask(version, [[1, 2, 3], [4, 5], [6, 7, 8]])
    assert found == [[8, 8, 8], [8, 8], [8, 8, 8]]


def test_a_batch_that_fails_is_asked_request_by_request(version):
    found = ask(version, [[1, 2, 3], [-1, 5], [6, 7, 8]])
    first, refusal, last = found
    assert first == last == [3, 3, 3] and "`numbers`" in refusal


def test_no_rows_and_too_many_go_alone(version):
    assert ask(version, [[]]) == [[]]
    assert ask(version, [[1] * 9]) == [[9] * 9]


def test_what_compares_two_sides_goes_alone(version):
    first, second = np.float32([1, 2]), np.float32([3])
    inputs = {"first": first, "second": second}
    answers = version.predict("pairs", inputs)
    np.testing.assert_array_equal(answers["sums"], [[4], [5]])
    inputs = {"first": np.zeros(4096, "f"), "second": np.zeros(65, "f")}
    with pytest.raises(RequestError, match="`first`"):
        version.predict("pairs", inputs)


def test_parameters_are_read_as_tensorflow_serving_writes_them(tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(
        "max_batch_size { value: 8 }  # rows\n"
        "batch_timeout_micros {\n  value: 0\n}\nmax_enqueued_batches: { value: "
        "100 }\nnum_batch_threads { value: 1 }\n"
        "allowed_batch_sizes: 4\nallowed_batch_sizes: 8\n"
    )
    assert read_parameters(path) == Batching(8, 0, 100, 1, (4, 8))


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_sise { value: 8 }",
        "max_batch_size { value: many }",
        "max_batch_size { value: 0 }",
        "allowed_batch_sizes: 4",
        "allowed_batch_sizes: 32 allowed_batch_sizes: 32",
    ],
)
def test_parameters_that_are_none_are_named(tmp_path, text):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(text)
    with refused(path, kind=InputError):
        read_parameters(path)
