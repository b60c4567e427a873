"""A few malformed requests to the smallest model of the zoo, and a bad one."""

import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from tbnets.serving import zoo
from tests.fuzz import requests


def test_malformed_requests_harm_no_next_one(tmp_path, capsys):
    (tmp_path / "small").symlink_to(zoo.folder() / "scenes_localization")
    assert requests.run(40, 0, tmp_path) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[0].startswith("| model | signature | sent | refused")
    assert lines[-1].startswith("| all |  | 40 |") and lines[-1].endswith(
        "| 0 |"
    )
    assert any("| small | embed_phrases |" in line for line in lines)


@pytest.mark.parametrize("harm", ["not finite", "differs"])
def test_a_model_that_is_harmed_is_a_fault(tmp_path, capsys, harm):
    module = tf.Module()
    module.count = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="rows")])
    def embed(rows):
        if harm == "differs":
            rows = tf.zeros_like(rows) + module.count.assign_add(1.0)
        return {"embeddings": rows}

    module.embed = embed
    path = str(tmp_path / "bad" / "1")
    tf.saved_model.save(module, path, signatures={"embed": embed})
    assert requests.run(30, 0, tmp_path) > 0
    assert harm in capsys.readouterr().out


def test_a_process_that_dies_is_a_fault_and_another_one_goes_on(
    tmp_path, capsys
):
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "captions")])
    def count(captions):
        words = tf_text.WhitespaceTokenizer().tokenize(captions)
        return {"counts": words.row_lengths()}

    module.count = count
    path = str(tmp_path / "bad" / "1")
    tf.saved_model.save(module, path, signatures={"count": count})
    # Among these a single string in place of a list: no door stands before it.
    assert requests.run(12, 1, tmp_path) > 0
    said = capsys.readouterr().out
    assert "captions of another rank: exit code -11" in said
    assert "| all |  | 12 |" in said
