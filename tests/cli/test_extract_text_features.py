"""Tests of the extraction's command line."""

import numpy as np
import pytest

from tbnets.data.store.reader import open_features
from tbnets.features.caption_features import load_encoder_of
from tests import verbs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "captions.csv").write_text(
        "image,caption,split\na.jpg,Two dogs run,train\na.jpg,A  dog,train\n"
        "b.png,a cat,train\nc.jpg,a dog and a cat,test\nc.jpg,a cat,test\n"
    )
    return tmp_path


def run(folder, *flags, code=0):
    return verbs.printed(
        "extract_text_features",
        f"--captions={folder / 'captions.csv'}",
        f"--output={folder / 'store'}",
        "--features=tfidf",
        *flags,
        code=code,
    )


def test_tfidf_of_all_splits_fitted_on_one(folder):
    text = run(folder, "--splits=test,train")
    assert "fitted    on 3 captions" in text and "--text_features=" in text
    store = open_features(folder / "store")
    texts = ("Two dogs run", "A dog", "a cat", "a dog and a cat")
    assert store.ids == texts
    encoder = load_encoder_of(store.made_by, folder / "store")
    # dog of two captions; the three of one each alphabetically.
    assert tuple(encoder.notes_["terms"]) == ("dog", "cat", "run", "two")
    expected = encoder.transform(texts)
    np.testing.assert_array_equal(store.take(range(4)), expected)
    assert "fitted" not in run(folder, "--splits=test,train")
    assert "num_terms: 3000 in" in run(folder, "--num_terms=2", code=1)


def test_missing_splits_are_drawn(folder):
    rows = "".join(f"{i}.jpg,a dog {i}\n" for i in range(10))
    (folder / "captions.csv").write_text(f"image,caption\n{rows}")
    # Of ten images six are learned from, and all have features.
    text = run(folder)
    assert "fitted    on 6 captions" in text and "10 texts x" in text


def test_phrases_can_replace_captions(folder):
    box = '"box": [0, 0, 1, 1]'
    (folder / "phrases.jsonl").write_text(
        f'{{"image": "a.jpg", "phrase": "two dogs", {box}}}\n'
        f'{{"image": "b.png", "phrase": "a cat", {box}}}\n'
        f'{{"image": "c.jpg", "phrase": "the cat", {box}}}\n'
    )
    run(folder, f"--phrases={folder / 'phrases.jsonl'}")
    ids = open_features(folder / "store").ids
    assert ids == ("two dogs", "a cat", "the cat")
