"""Models, their versions, and what they refuse."""

import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.extras.server.models import Models
from tbnets.extras.server.versions import Version, Versions
from tbnets.serving import protocol
from tbnets.serving.deployment import WARMUP_FILE
from tbnets.serving.protocol import RequestError

ONES = np.ones([3, 2], np.float32)


def predict(models, model, signature, inputs, version=None, **more):
    with models.using(model, version) as served:
        return served.predict(signature, inputs, **more)


def states(versions):
    return {one.version: one.state for one in versions.states()}


def test_the_newest_version_answers(models):
    answers = predict(models, "tiny", "times", {"numbers": ONES})
    np.testing.assert_array_equal(answers["products"], 2 * ONES)
    np.testing.assert_array_equal(answers["sums"], [4, 4, 4])
    answers = predict(
        *(models, "tiny", "", {"numbers": ONES}, 2), output_filter=["sums"]
    )
    assert list(answers) == ["sums"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"model": "large"}, "NOT_FOUND"),
        ({"version": 1}, "NOT_FOUND"),
        ({"version": 0}, "NOT_FOUND"),
        ({"signature": "x"}, "FAILED_PRECONDITION"),
        ({"output_filter": ["x"]}, "INVALID_ARGUMENT"),
        ({"output_filter": ["sums"] * 2}, "INVALID_ARGUMENT"),
        *[
            ({"inputs": inputs}, "INVALID_ARGUMENT")
            for inputs in (
                {},
                {"numbers": ONES, "x": ONES},
                {"numbers": ONES.astype(np.float64)},
                {"numbers": np.ones([4097, 2], np.float32)},
                {"numbers": ONES[0]},
                {"numbers": -ONES[:1]},
            )
        ],
    ],
)
def test_what_is_refused(models, asked, code):
    usual = {"model": "tiny", "signature": "times", "inputs": {"numbers": ONES}}
    with pytest.raises(RequestError) as caught:
        predict(models, **{**usual, **asked})
    assert caught.value.code == code


def test_metadata_and_status(models):
    number, signatures = models.metadata("tiny")
    assert number == 2
    assert {*signatures["pairs"].inputs} == {"first", "second"}
    assert [tuple(one)[:3] for one in models.status("tiny")] == [
        (2, "AVAILABLE", "OK")
    ]
    for model, version in (("tiny", 1), ("large", None)):
        with pytest.raises(RequestError) as caught:
            models.status(model, version)
        assert caught.value.code == "NOT_FOUND"


def put(folder, number, text):
    """Writes a version that `load` reads."""
    path = folder / str(number) / "saved_model.pb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def load(number, path):
    """Loads a version that is the text of a file."""
    text = (path / "saved_model.pb").read_text()
    if text.startswith("broken"):
        raise InputError(f"it is {text}")
    return text


@pytest.fixture
def lines():
    return []


@pytest.fixture
def watched(tmp_path, lines):
    put(tmp_path, 1, "one")
    versions = Versions("tiny", tmp_path, load, tell=lines.append)
    versions.start()
    return versions


def test_a_new_version_takes_over(watched, tmp_path, lines):
    put(tmp_path, 2, "two")
    watched.look()
    assert states(watched) == {2: "AVAILABLE", 1: "END"}
    assert watched.get() == watched.get(2) == "two"
    with pytest.raises(RequestError):
        watched.get(1)
    both = Versions("tiny", tmp_path, load, wanted=sorted, tell=lines.append)
    both.start()
    assert (both.get(), both.get(1)) == ("two", "one")
    # The first version comes back.
    shutil.rmtree(tmp_path / "2")
    watched.look()
    assert watched.get() == "one"
    assert states(watched) == {2: "END", 1: "AVAILABLE"}


def test_a_broken_version_is_told_once_and_the_old_one_serves(
    watched, tmp_path, lines
):
    put(tmp_path, 2, "broken")
    watched.look()
    watched.look()
    assert len(lines[1:]) == 1 and "it is broken" in lines[1]
    assert states(watched) == {2: "END", 1: "AVAILABLE"}
    assert watched.states(2)[0].message == "it is broken"
    assert watched.get() == "one"
    put(tmp_path, 2, "mended, as its other files have come")
    watched.look()
    assert states(watched) == {2: "AVAILABLE", 1: "END"}


def test_a_folder_that_is_emptied_goes_on_serving(watched, tmp_path):
    shutil.rmtree(tmp_path / "1")
    watched.look()
    assert watched.get() == "one"


def test_without_a_version_that_loads_nothing_starts(tmp_path):
    versions = Versions("tiny", tmp_path, load, tell=print)
    with pytest.raises(InputError, match="tiny="):
        versions.start()
    put(tmp_path, 1, "broken")
    with pytest.raises(InputError, match="it is broken"):
        versions.start()


@pytest.mark.parametrize(("sign", "fails"), [(1, False), (-1, True)])
def test_a_version_answers_its_warm_up_requests_first(
    versions, tmp_path, sign, fails
):
    path = shutil.copytree(versions / "1", tmp_path / "1")
    log = protocol.api("prediction_log_pb2").PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = "times"
    request.inputs["numbers"].CopyFrom(protocol.to_proto(sign * ONES))
    with tf.io.TFRecordWriter(str(path / WARMUP_FILE)) as file:
        file.write(log.SerializeToString())
    if not fails:
        assert Version(1, path).number == 1
        return
    with pytest.raises(RequestError, match="`numbers`"):
        Version(1, path)


def test_files_that_go_while_they_are_listed_end_no_watching(
    versions, lines, monkeypatch
):
    models = Models({"tiny": versions}, poll_seconds=0.001, tell=lines.append)
    models.start()
    looked, looks = threading.Event(), []

    def look(versions):
        looks.append(versions)
        if len(looks) > 1:
            looked.set()
        raise FileNotFoundError("saved_model.pb")

    monkeypatch.setattr(Versions, "look", look)
    assert looked.wait(10)
    models.close()
    assert any("saved_model.pb" in line for line in lines)
