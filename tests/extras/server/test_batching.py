"""Requests put together, and what a bad one does to the others."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tbnets.extras.server.models import Batching, Version, read_parameters
from tbnets.serving.protocol import RequestError
from tests.extras.server.tiny_models import write_version

OPTIONS = Batching(
    max_batch_size=8,
    batch_timeout_micros=300_000,
    num_batch_threads=1,
    allowed_batch_sizes=(1, 4, 8),
)


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    path = write_version(tmp_path_factory.mktemp("versions"), 1)
    return Version(1, path, batching=OPTIONS)


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
    told = "`numbers` must be positive: -1 5"
    assert found == [[3, 3, 3], told, [3, 3, 3]]


def test_no_rows_and_too_many_go_alone(version):
    assert ask(version, [[]]) == [[]]
    assert ask(version, [[1] * 9]) == [[9] * 9]


def test_what_compares_two_sides_goes_alone(version):
    first, second = np.float32([1, 2]), np.float32([3])
    inputs = {"first": first, "second": second}
    answers = version.predict("pairs", inputs)
    np.testing.assert_array_equal(answers["sums"], [[4], [5]])
    inputs = {"first": np.zeros(4096, "f"), "second": np.zeros(65, "f")}
    with pytest.raises(RequestError, match="`first` x `second` must be at mo"):
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
    ("text", "message"),
    [
        ("max_batch_sise { value: 8 }", "found 'max_batch_sise'"),
        ("max_batch_size { value: many }", "found 'max_batch_size { value"),
        ("max_batch_size { value: 0 }", "expected numbers above 0"),
        ("allowed_batch_sizes: 4", "rise to 32, the max_batch_size; found"),
        ("allowed_batch_sizes: 32 allowed_batch_sizes: 32", "sizes that rise"),
    ],
)
def test_parameters_that_are_none_are_told(tmp_path, text, message):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
        read_parameters(path)
