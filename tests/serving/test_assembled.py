"""A part of a model becomes the whole at its first use, once."""

import json
import shutil
import threading
import types

import numpy as np
import pytest

from tbnets.data.images import read_content
from tbnets.errors import InputError
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import PhotoFeatures
from tbnets.serving import assembled, zoo
from tbnets.serving.checksums import ANSWERS, identity_of, write_checksums
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.refusals import refused
from tests.saved_models import loaded_once
from tests.serving.test_export import VOCABULARY, make_network


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A zoo with a model of features, `part`, and the model of its first use.

    The answers in the zoo are those of the image network, and then of `part`.
    """
    folder = tmp_path_factory.mktemp("made")
    weights, path = folder / "cnn.weights.h5", folder / "zoo/tiny"
    tiny_cnn.tiny_cnn(top=False).network.save_weights(str(weights))
    with tiny_cnn.known(lambda: weights), loaded_once():
        cnn = build_cnn(tiny_cnn.NAME, str(weights), top=False)
        features = PhotoFeatures(cnn, ["first", "last"])
        network = make_network(features.dim)
        export_saved_model(
            network,
            VOCABULARY,
            path / "1",
            metadata={"image_features_made_by": features.description()},
            half_precision=True,
        )
        part = load_saved_model(path)

        def embed_images(photos):
            rows = features([read_content(photo) for photo in photos])
            return part.embed_images(rows.numpy())

        both = types.SimpleNamespace(
            embed_images=embed_images, embed_text=part.embed_text
        )
        (path / ANSWERS).write_text(json.dumps(assembled.answers_of(both)))
        write_checksums(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TBNETS_CACHE", str(folder / "cache"))
            model = zoo.open_model(path)
        yield types.SimpleNamespace(
            folder=folder, part=part, features=features, model=model
        )


@pytest.fixture
def part(made, tmp_path, monkeypatch):
    """A copy of that zoo's model, a cache of its own, and its whole at hand."""

    def copy(_, path):
        return shutil.copytree(made.model.path, path)

    monkeypatch.setattr(assembled, "add_networks", copy)
    # To compare its answers, what is put together need not be loaded.
    monkeypatch.setattr(assembled, "load_saved_model", lambda _: made.model)
    monkeypatch.setenv("TBNETS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(made.folder / "zoo", tmp_path / "zoo")
    monkeypatch.setattr(zoo, "folder", lambda: tmp_path / "zoo")
    return tmp_path / "zoo/tiny"


def test_model_is_assembled_once_and_then_loaded(made, capsys, monkeypatch):
    path, cache = made.model.path, made.folder / "cache"
    assert path.parts[-2:] == ("tiny", "1") and path.is_relative_to(cache)
    monkeypatch.setenv("TBNETS_CACHE", str(cache))
    monkeypatch.setattr(assembled, "add_networks", None)
    again = zoo.open_model(made.folder / "zoo/tiny")
    assert again.path == path and capsys.readouterr().err == ""


def test_assembled_model_embeds_features_like_the_original(made):
    photos = [photo(0), photo(1)]
    rows = made.features(photos).numpy()
    wanted, model, captions = made.part, made.model, ["a dog", ""]
    expected = wanted.embed_images(rows)
    np.testing.assert_array_equal(model.embed_features(rows), expected)
    np.testing.assert_array_equal(
        model.embed_text(captions), wanted.embed_text(captions)
    )
    found = model.embed_images(photos)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(
        model.similarity(photos, captions),
        found @ wanted.embed_text(captions).T,
        atol=1e-5,
    )
    with pytest.raises(InputError, match=r"images\[1\]"):
        model.embed_images([photos[0], b"none"])
    assert model.metadata["max_pixels"] == 80_000_000


def test_model_is_assembled_again_after_code_of_its_graph_changed(
    part, tmp_path, monkeypatch
):
    first = zoo.locate("tiny")
    identity = (first / assembled.IDENTITY).read_text()
    new = shutil.copy(assembled.images.__file__, tmp_path / "images.py")
    new.write_text(new.read_text() + "# Reads EXIF differently.\n")
    monkeypatch.setattr(assembled.images, "__file__", str(new))
    second = zoo.locate("tiny")
    assert second != first
    assert (second / assembled.IDENTITY).read_text() != identity


def damage(path):
    file = path / "1/variables/variables.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def test_damaged_cached_model_is_assembled_again(part, capsys):
    path = zoo.locate("tiny")
    for harm in (
        damage,
        lambda path: (path / "1/saved_model.pb").unlink(),
        lambda path: (path / "more").touch(),
        lambda path: (path / zoo.CHECKSUMS).unlink(),
    ):
        harm(path)
        assert zoo.locate("tiny") == path
        assert capsys.readouterr().err
    zoo.check_files(path)


def test_parallel_first_uses_assemble_once(part, capsys):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(zoo.locate("tiny")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len({*found}) == 1
    assert capsys.readouterr().err.count(str(found[0])) == 1


def test_identity_of_assembled_model_depends_on_its_parts(part, made):
    """Another making writes other bytes; another part is another model."""

    def identity_at(path):
        return identity_of(
            types.SimpleNamespace(path=path / "1", embedding_dim=3)
        )

    path = zoo.locate("tiny")
    known = identity_at(path)
    assert known == identity_of(made.model) | {"embedding_dim": 3}
    damage(path)
    write_checksums(path)
    (part / "README.md").write_text("# Tiny\n")
    write_checksums(part)
    assert zoo.locate("tiny") != path
    assert identity_at(zoo.locate("tiny")) == known
    damage(part)
    write_checksums(part)
    assert identity_at(zoo.locate("tiny")) != known


@pytest.mark.parametrize("told", ["[]", '{"photos": 1}', None])
def test_model_with_unexpected_embeddings_is_not_cached(part, told):
    if told is None:
        answers = json.loads((part / ANSWERS).read_text())
        answers["photos"][1][0] += 0.01
        told = json.dumps(answers)
    (part / ANSWERS).write_text(told)
    write_checksums(part)
    with refused(ANSWERS):
        zoo.load("tiny")
    kept = assembled.cache_folder().rglob("saved_model.pb")
    assert list(kept) == []


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TBNETS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert assembled.cache_folder() == tmp_path / "tbnets"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert assembled.cache_folder() == tmp_path / "me/.cache/tbnets"
