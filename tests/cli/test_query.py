"""Tests of the query tool, on networks whose answers are plain to see."""

import contextlib
import functools
import io
import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets import cli
from tbnets.cli import query
from tbnets.data.images import decode_images
from tbnets.serving.export import export_saved_model
from tbnets.serving.inputs import TreeReader
from tbnets.serving.served import load_saved_model
from tbnets.text.packed_trees import WORD
from tests import saved_models
from tests.refusals import refused
from tests.tiny_localizer import VOCABULARY, ColourNetwork
from tests.verbs import ask
from tests.verbs import call as call_verb

COLORS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}


class TreeNetwork(ColourNetwork):
    """Embeds captions that are trees, whose phrases have no word."""

    def embed_text(self, texts, training=False):
        return super().embed_text(texts[:, :, WORD])


class Terminal(io.StringIO):
    """What is printed where somebody reads it."""

    def isatty(self):
        return True


def answers_of(text):
    """Reads the tables back: [(title, [(similarity, answer), ...]), ...]."""
    tables = []
    for line in text.splitlines():
        cells = line.split(None, 2)
        if " among " in line:
            tables.append((line, []))
        elif cells and cells[0].isdigit():
            tables[-1][1].append((cells[1], cells[2]))
    return tables


NETWORKS = {
    "bytes": ((4, 4, 3), lambda photos: decode_images(photos, 4)),
    "features": ((3,), None),
}
"""Name -> (shape of an image, reader of photos)."""


@functools.cache
def written(name):
    """Returns a `TemporaryDirectory` with a network, once a process."""
    shape, read_photos = NETWORKS[name]
    folder = tempfile.TemporaryDirectory()
    export_saved_model(
        ColourNetwork(),
        VOCABULARY,
        pathlib.Path(folder.name, "1"),
        image_shape=shape,
        read_photos=read_photos,
    )
    return folder


def write_networks(folder, *names):
    """Writes networks below a folder, by default all."""
    for name in names or NETWORKS:
        shutil.copytree(written(name).name, folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two networks, four photos of which one is cut, features, captions."""
    folder = tmp_path_factory.mktemp("query")
    write_networks(folder)
    export_saved_model(
        TreeNetwork(),
        TreeReader(VOCABULARY),
        folder / "trees" / "1",
        image_shape=(3,),
    )
    photos = folder / "photos"
    (photos / "more").mkdir(parents=True)
    for name, color in COLORS.items():
        place = photos / "more" if name == "blue" else photos
        PIL.Image.new("RGB", (30, 20), color).save(place / f"{name}.png")
    whole = (photos / "red.png").read_bytes()
    (photos / "cut.png").write_bytes(whole[:-20])
    (photos / "text.jpg").write_text("no photo")
    (photos / "notes.txt").write_text("not looked at")
    for name in ("empty", "broken"):
        (folder / name).mkdir()
    (folder / "broken" / "empty.jpg").write_bytes(b"")
    np.save(folder / "x_ims.npy", np.array([[3, 4, 0], [0, 0, 2]], np.float32))
    (folder / "x_ids.txt").write_text("red.png\n../../outside\n")
    np.save(folder / "nan_ims.npy", np.full([2, 3], np.nan, np.float32))
    (folder / "captions.txt").write_text("green\n\nA RED one\nblue!\n")
    (folder / "none.txt").write_text("\n \n")
    return folder


BYTES = "--model={folder}/bytes/1"
PHOTOS = "--images={folder}/photos"
FEATURES = "--model={folder}/features/1", "--image_features={folder}/x_ims.npy"
TREES = "--model={folder}/trees/1", FEATURES[1]
CAPTIONS = "--captions={folder}/captions.txt"
RED = "--image={folder}/photos/red.png"


@pytest.fixture(scope="module")
def query_of(folder):
    """A function of a line, {folder} in it: (output, error output, error)."""

    def call(*words):
        return ask("query", *(word.format(folder=folder) for word in words))

    with saved_models.loaded_once():
        yield call


@pytest.fixture(scope="module")
def answers(query_of):
    """A function of a line that is answered: its tables, see `answers_of`."""

    def call(*words):
        out, _, failure = query_of(*words)
        assert failure == ""
        return answers_of(out)

    return call


def test_photos_are_ranked_for_each_query(answers):
    red, blue = answers(BYTES, PHOTOS, "--top=2", "red", "a Blue zebra")
    assert red[0] == '"red" among 3 images'
    # Ties keep the order of the file names: green.png before more/blue.png.
    assert red[1] == [("1.000", "red.png"), ("0.000", "green.png")]
    # "a" and "zebra" are unknown, each [1, 1, 1]: the text is [2, 2, 3] /
    # sqrt(17), 3 / sqrt(17) = 0.728 along blue, 2 / sqrt(17) = 0.485 else.
    assert blue[0].startswith('"a Blue zebra" (unknown words: a, zebra)')
    assert blue[1] == [("0.728?", "more/blue.png"), ("0.485?", "green.png")]
    # The first word is the folder unless a flag says.
    assert answers(BYTES, "{folder}/photos", "--top=2", "red") == [red]


def test_sentences_are_read_from_a_pipe(answers, monkeypatch):
    lines = io.BytesIO("\ufeffred\n\n a Blue zebra \r\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
    line = BYTES, "{folder}/photos", "--top=2"
    assert answers(*line) == answers(*line, "red", "a Blue zebra")


def test_sentences_are_read_from_the_terminal(folder, tmp_path):
    keys, terminal = os.openpty()
    os.write(keys, b"red\n\na \xff Blue zebra\n\x04")
    line = [f"--model={folder}/bytes/1", f"{folder}/photos", "--top=2"]
    picture = tmp_path / "answers.png"
    with (
        saved_models.loaded_once(),
        open(terminal, "r+b", buffering=0) as typed,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", io.TextIOWrapper(typed))
        patch.setattr("sys.stdout", typed_out := Terminal())
        cli.call("query", [*line, f"--montage={picture}"])
    os.close(keys)
    red, blue = answers_of(typed_out.getvalue())
    assert red[1] == [("1.000", "red.png"), ("0.000", "green.png")]
    assert blue[1] == [("0.728?", "more/blue.png"), ("0.485?", "green.png")]
    assert "query for 3 images; Ctrl-D" in typed_out.getvalue()
    assert picture.is_file()


def test_tree_network_parses_queries(answers):
    pytest.importorskip("textblob", reason="needs the extra: tbnets[parse]")
    green, unknown, wordless = answers(*TREES, "green", "A Blue zebra", "...")
    assert [green] == answers(*FEATURES, "green")
    assert unknown[0].startswith('"A Blue zebra" (unknown words: a, zebra)')
    assert wordless[0].startswith('"..." (no word of this is known)')
    words = CAPTIONS, "--image=red.png"
    assert answers(*TREES, *words) == answers(*FEATURES, *words)


def test_like_ranks_photos_by_a_photo(answers, folder):
    line = BYTES, "{folder}/photos", "--top=2", "blue"
    photo = "--like={folder}/photos/red.png"
    page = folder / "like.html"
    (_, by_words), (like, by_photo) = answers(*line, photo, f"--html={page}")
    assert like == f"like {folder}/photos/red.png among 3 images"
    assert by_photo == [("1.000", "red.png"), ("0.000", "green.png")]
    assert by_words[0] == ("1.000", "more/blue.png")
    assert "<p>photos like it</p>" in page.read_text("utf-8")
    # [0.6, 0.8, 0] with itself, and with [0, 0, 1].
    [(like, rows)] = answers(*FEATURES, "--like=red.png")
    assert like == "like red.png among 2 images"
    assert rows == [("1.000", "red.png"), ("0.000", "../../outside")]


def test_json_has_the_printed_answers_without_other_output(query_of, folder):
    line = BYTES, PHOTOS, "--json=-", "--top=1", "red", "a zebra"
    first, second = json.loads(query_of(*line)[0])["queries"]
    similarity = pytest.approx(1)
    record = {"image": "red.png", "similarity": similarity, "doubtful": False}
    assert first.pop("answers") == [record]
    assert first == {"query": "red", "unknown_words": [], "note": ""}
    assert second["answers"][0]["doubtful"]
    assert second["unknown_words"] == ["a", "zebra"]
    assert second["note"] == "no word of this is known"
    path = folder / "captions.json"
    query_of(BYTES, CAPTIONS, RED, f"--json={path}", "--top=1")
    found = json.loads(path.read_text())
    assert found["image"] == f"{folder}/photos/red.png"
    similarity = pytest.approx(0.728, abs=1e-3)
    assert found["answers"] == [
        {"caption": "A RED one", "similarity": similarity}
    ]


@pytest.fixture(scope="module")
def model(folder):
    return load_saved_model(folder / "bytes" / "1")


def test_python_api_gives_the_answers_of_the_command(
    model, folder, tmp_path, capsys
):
    photos = shutil.copytree(folder / "photos", tmp_path / "photos")
    [red] = model.search(["red"], photos, top=2, cache=False)
    assert not (tmp_path / "photos.tbnets").exists()
    assert model.search(["red"], photos, top=2) == [red]
    assert (tmp_path / "photos.tbnets").exists()
    paths = [str(photos / name) for name in ("red.png", "green.png")]
    assert [answer.image for answer in red] == paths
    assert [answer.similarity for answer in red] == pytest.approx([1, 0])
    assert "3 of 6 files left out" in capsys.readouterr().err
    pixels = np.full((3, 3, 3), COLORS["blue"], np.uint8)
    whole = (photos / "red.png").read_bytes()
    images = [whole, pixels, PIL.Image.fromarray(pixels)]
    found = model.search(["red"], images, like=[pixels])
    order = [[answer.image for answer in one] for one in found]
    assert order == [[0, 1, 2], [1, 2, 0]]
    rows = model.embed_images(images)
    assert model.search(["red"], rows, like=[pixels]) == found
    assert model.search([], photos) == []
    assert model.search(["red"], []) == [[]]
    with refused("find"):
        model.find(["red"], "photo.png")


def test_montage_is_written_to_the_cache_by_default(query_of, folder):
    line = BYTES, PHOTOS, "red"
    cache, montage = folder / "cache", folder / "montage.png"
    for more, path in (
        ([], folder / "photos.tbnets" / "answers.png"),
        ([f"--cache={cache}"], cache / "answers.png"),
        ([f"--montage={montage}"], montage),
    ):
        assert f"side by side: {path}" in query_of(*line, *more)[0]
        with PIL.Image.open(path) as sheet:
            assert sheet.format == "PNG"
    assert "side by side" not in query_of(*line, "--montage=")[0]
    # Nothing is written among the user's own files.
    names = ["cut.png", "green.png", "more", "notes.txt", "red.png", "text.jpg"]
    assert sorted(os.listdir(folder / "photos")) == names


@pytest.mark.parametrize(
    ("line", "best"),
    [
        # "A RED one" has two unknown words: [3, 2, 2] / sqrt(17).
        ([BYTES, CAPTIONS, RED], ("0.728", "0.000")),
        # [0.6, 0.8, 0] with [3, 2, 2] / sqrt(17): 3.4 / 4.123 = 0.825.
        ([*FEATURES, CAPTIONS, "--image=red.png"], ("0.825", "0.800")),
    ],
)
def test_captions_are_ranked_for_an_image(answers, line, best):
    [(title, rows)] = answers(*line)
    assert title.endswith("among 3 captions")
    assert rows[:2] == [*zip(best, ("A RED one", "green"))]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "a dog\n\n red, blue \na dog\n"),
        ("a.csv", '\nImage;caption\nx;a dog\nx;"red, blue"\ny;a dog\n'),
        (
            "a.jsonl",
            '{"image": "x", "caption": "a dog"}\n'
            '{"caption": "red, blue", "image": "y"}\n',
        ),
        ("broken.csv", "image,caption,split\nx,a\n"),
        ("broken.jsonl", '{"text": "a dog"}\n'),
    ],
)
def test_captions_may_be_lines_or_a_table(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    is_broken = name.startswith("broken")
    with refused(name) if is_broken else contextlib.nullcontext():
        found = query.read_queries(tmp_path / name)
        assert found == ["a dog", "red, blue"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"montage": "photos/a.png"}, "--montage"),
        ({"json": "photos/more/a.JPG"}, "--json"),
        ({"cache": "photos"}, "--cache"),
        ({"html": "like.png"}, "--html"),
        ({"html": "a", "json": "./a"}, "--json"),
        ({"html": "/dev/null", "json": "/dev/null"}, None),
        ({"cache": "photos", "montage": "photos.png"}, None),
    ],
)
def test_outputs_do_not_overwrite_photos_or_each_other(
    tmp_path, monkeypatch, flags, named
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    given = {"images": "photos", "queries": ["a"], "like": ["like.png"]}
    with refused(named) if named else contextlib.nullcontext():
        query.check_outputs(query.Options(**given, **flags))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ([BYTES, CAPTIONS, "--image={folder}/photos/cut.png"], "cut.png"),
        ([*FEATURES, CAPTIONS, "--image=cow"], "cow"),
        ([BYTES, PHOTOS, "--like={folder}/none.png"], "none.png"),
        ([CAPTIONS, "--image=red.png", "red"], "`tbnets query`"),
        ([BYTES, PHOTOS, "a \udcff"], "`tbnets query`"),
        ([BYTES, "{folder}/photos"], "0 sentences"),
        ([BYTES, PHOTOS, "--approximate", "red"], "`--approximate`"),
        ([BYTES, PHOTOS, "--explain={folder}/a.png", "red"], "embed_cells"),
        ([BYTES, "--images={folder}/empty", "red"], "`--images`"),
        ([BYTES, "--images={folder}/broken", "red"], "`--images`"),
        ([BYTES, RED, "--captions={folder}/none.txt"], "`--captions`"),
        (
            [FEATURES[0], "--image_features={folder}/nan_ims.npy", "red"],
            "images` must contain only finite",
        ),
    ],
)
def test_wrong_queries_raise_errors(query_of, monkeypatch, line, named):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    out, _, failure = query_of(*line)
    assert named in failure and answers_of(out) == []


class Quarters:
    """Reads a photo as its mean colour, and as the colours of its quarters."""

    def decode(self, content):
        return decode_images([content], 2)[0]

    def forward(self, photos):
        return tf.reduce_mean(photos, axis=[1, 2])

    def maps(self, photos):
        return photos


def test_explain_draws_the_similarity_of_cells(tmp_path):
    path, photo = tmp_path / "model" / "1", tmp_path / "photos" / "one.png"
    options = {"image_shape": (3,), "read_photos": Quarters()}
    export_saved_model(ColourNetwork(), VOCABULARY, path, **options)
    pixels = np.zeros((2, 2, 3), np.uint8)
    pixels[0, 0], pixels[0, 1] = COLORS["red"], COLORS["green"]
    pixels[1] = COLORS["blue"]
    photo.parent.mkdir()
    enlarged = PIL.Image.fromarray(pixels).resize((40, 40), PIL.Image.NEAREST)
    enlarged.save(photo)
    model = load_saved_model(path)
    cells = model.embed_cells([photo])
    mean = model.embed_images([photo])[0]
    np.testing.assert_allclose(cells.mean(axis=(1, 2))[0], mean, atol=0.02)
    no_photo = model.call("embed_cells", image_bytes=[b"none"])["embeddings"]
    assert not no_photo.any()
    picture = tmp_path / "why.png"
    line = f"--model={path}", f"--explain={picture}", photo.parent
    phrases = []

    def noted(photos, texts):
        phrases.append(texts)
        return type(model).heat_maps(model, photos, texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query.Options, "open", lambda *_: model)
        patch.setattr(model, "heat_maps", noted)
        patch.setattr(query, "short_noun_phrases", lambda text: [text, "green"])
        out, _, failure = ask("query", *line, "red")
    assert not failure and str(picture) in out
    assert phrases == [["red", "green"]]
    drawn = np.asarray(PIL.Image.open(picture)).astype(int)
    reds = np.argwhere((drawn[..., 0] > 150) & (drawn[..., 1] < 90))
    height, width = drawn.shape[:2]
    assert len(reds) and (reds.mean(axis=0) < (height / 4, width / 2)).all()
    with refused("--explain"):
        call_verb("query", *line, f"--like={photo}")
