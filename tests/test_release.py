"""What a release says of itself agrees, and names what others have made."""

import pathlib
import re

import tbnets
from tbnets.serving import zoo

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read(name):
    return (ROOT / name).read_text("utf-8")


def test_version_agrees_in_all_files():
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+|\.dev\d+)?", tbnets.__version__)
    told = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)
    assert told[1] == tbnets.__version__
    newest = re.search(r"^## (\S+) \((.+)\)$", read("CHANGELOG.md"), re.M)
    assert newest[1] == tbnets.__version__
    assert re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", newest[2])


def test_notice_names_licence_data_and_weights_of_every_zoo_model():
    notice, _, notes = read("model_zoo/NOTICE").partition("\n[1] ")
    said = dict(re.findall(r"^(\w+)\n((?:    .+\n)+)", notice, re.M))
    assert sorted(said) == sorted(zoo.names())
    for name, text in said.items():
        assert "Learned from" in text, name
        pointed = re.findall(r"\[(\d)\]", text)
        assert pointed or "the Apache License 2.0" in text, name
        assert all(f"[{one}] " in f"[1] {notes}" for one in pointed), name
        card = read(f"model_zoo/{name}/README.md")
        for part in ("EfficientNet-Lite0", "EfficientNet-Lite2", "GloVe 6B"):
            assert (part in card) == (part in text), (name, part)
