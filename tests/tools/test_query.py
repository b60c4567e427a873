"""Tests of the query tool, on networks whose answers are plain to see."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets import cli
from tbnets.cli import asking, query
from tbnets.data.images import decode_images
from tbnets.serving.export import export_saved_model
from tbnets.serving.inputs import TreeReader
from tbnets.serving.served import load_saved_model
from tbnets.text.packed_trees import WORD
from tbnets.text.vocabulary import Vocabulary
from tests import saved_models
from tests.verbs import ask

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = Vocabulary(("", "[UNK]", "blue", "green", "red"))
COLORS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}


class ColorNetwork(tf.Module):
    """Embeds a photo as its mean colour, a caption as its mean colour word."""

    def __init__(self):
        super().__init__()
        rows = [[0] * 3, [1] * 3, [0, 0, 1], [0, 1, 0], [1, 0, 0]]
        self.words = tf.Variable(rows, dtype=tf.float32)

    def embed_images(self, images, training=False):
        if images.shape.rank == 4:
            images = tf.reduce_mean(images, axis=[1, 2])
        return tf.math.l2_normalize(images, axis=-1)

    def embed_text(self, texts, training=False):
        total = tf.reduce_sum(tf.gather(self.words, texts), axis=1)
        return tf.math.l2_normalize(total, axis=-1)


class TreeNetwork(ColorNetwork):
    """The same with captions as trees, whose phrases have no word."""

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two networks, four photos of which one is cut, features, captions."""
    folder = tmp_path_factory.mktemp("query")
    for name, shape, read_photos in (
        ("bytes", (4, 4, 3), lambda photos: decode_images(photos, 4)),
        ("features", (3,), None),
    ):
        export_saved_model(
            ColorNetwork(),
            VOCABULARY,
            folder / name / "1",
            image_shape=shape,
            read_photos=read_photos,
        )
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
    (folder / "empty").mkdir()
    np.save(folder / "x_ims.npy", np.array([[3, 4, 0], [0, 0, 2]], np.float32))
    (folder / "x_ids.txt").write_text("red.png\n../../outside\n")
    np.save(folder / "nan_ims.npy", np.full([2, 3], np.nan, np.float32))
    (folder / "captions.txt").write_text("green\n\nA RED one\nblue!\n")
    table = "image,caption\na,green\na,A RED one\nb,green\nb,blue!\n"
    (folder / "captions.csv").write_text(table)
    (folder / "none.txt").write_text("\n \n")
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    """Name of a question -> (standard output, standard error, error)."""
    by_bytes = f"--model={folder}/bytes/1"
    by_features = f"--model={folder}/features/1"
    photos = f"--images={folder}/photos"
    features = f"--image_features={folder}/x_ims.npy"
    captions = f"--captions={folder}/captions.txt"
    by_trees = f"--model={folder}/trees/1"
    questions = {
        "trees": [by_trees, features, "green", "A Blue zebra", "..."],
        "trees of captions": [by_trees, features, captions, "--image=red.png"],
        "photos": [by_bytes, photos, "--top=2", "red", "a Blue zebra"],
        "folder": [by_bytes, f"{folder}/photos", "--top=2", "red"],
        "batches of one": [by_bytes, photos, "--batch_size=1", "red"],
        "features": [by_features, features, "green"],
        "montage": [
            *(by_features, features, f"{folder}/photos", "red", "green"),
            f"--montage={folder}/montage.png",
        ],
        "again": [by_bytes, photos, "--montage=", "red"],
        "elsewhere": [by_bytes, photos, f"--cache={folder}/cache", "red"],
        "page": [
            *(by_bytes, photos, "--montage=", f"--html={folder}/page.html"),
            *("--top=2", "red", "<script>alert(1)</script> blue"),
        ],
        "nowhere": [by_bytes, photos, f"--cache={folder}/x_ims.npy", "red"],
        "photo": [by_bytes, captions, f"--image={folder}/photos/red.png"],
        "table": [
            *(by_bytes, f"--image={folder}/photos/red.png"),
            f"--captions={folder}/captions.csv",
        ],
        "id": [by_features, features, captions, "--image=red.png"],
        "like": [
            *(by_bytes, f"{folder}/photos", "--top=2", "blue"),
            *(f"--like={folder}/photos/red.png", f"--html={folder}/like.html"),
        ],
        "like an id": [by_features, features, "--like=red.png"],
        "like nothing": [by_bytes, photos, f"--like={folder}/none.png"],
        "json": [by_bytes, photos, "--json=-", "--top=1", "red", "a zebra"],
        "json of captions": [
            *(by_bytes, captions, f"--image={folder}/photos/red.png"),
            *(f"--json={folder}/captions.json", "--top=1"),
        ],
        "cut photo": [by_bytes, captions, f"--image={folder}/photos/cut.png"],
        "unknown id": [by_features, features, captions, "--image=cow"],
        "nothing": [],
        "both": [captions, "--image=red.png", "red"],
        "image alone": ["--image=red.png"],
        "no text": [by_bytes, photos, "a \udcff"],
        "no model": [f"--model={folder}/none", photos, "red"],
        "regions": ["--model=scenes_localization", photos, "red"],
        "no folder": [by_bytes, "red", "green"],
        "piped": [by_bytes, f"{folder}/photos", "--top=2"],
        "no sentence": [by_bytes, f"{folder}/photos"],
        "no features": [by_features, photos, "red"],
        "empty folder": [by_bytes, f"--images={folder}/empty", "red"],
        "no captions": [
            *(by_bytes, f"--image={folder}/photos/red.png"),
            f"--captions={folder}/none.txt",
        ],
        "montage of nothing": [by_features, features, "--montage=m.png", "a"],
        "nan": [
            *(by_features, f"--image_features={folder}/nan_ims.npy", "red"),
        ],
    }
    with saved_models.loaded_once(), pytest.MonkeyPatch.context() as patch:
        lines = io.BytesIO("\ufeffred\n\n a Blue zebra \r\n".encode())
        patch.setattr("sys.stdin", io.TextIOWrapper(lines))
        return {name: ask("query", *line) for name, line in questions.items()}


def test_photos_are_ranked_for_each_query(answers):
    out, err, failure = answers["photos"]
    assert failure == ""
    red, blue = answers_of(out)
    assert red[0] == '"red" among 3 images'
    assert red[1][0] == ("1.000", "red.png")
    # Ties keep the order of the file names: green.png before more/blue.png.
    assert red[1][1] == ("0.000", "green.png")
    # "a" and "zebra" are unknown, each [1, 1, 1]: the text is [2, 2, 3] /
    # sqrt(17), 3 / sqrt(17) = 0.728 along blue, 2 / sqrt(17) = 0.485 else.
    assert blue[0].startswith('"a Blue zebra" (unknown words: a, zebra)')
    assert blue[1] == [("0.728", "more/blue.png"), ("0.485", "green.png")]


def test_sentences_come_by_a_pipe_where_none_are_given(answers):
    assert answers_of(answers["piped"][0]) == answers_of(answers["photos"][0])


def test_sentences_are_typed_where_none_are_given(folder, tmp_path):
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
    assert blue[1] == [("0.728", "more/blue.png"), ("0.485", "green.png")]
    assert "sought in 3 images; Ctrl-D" in typed_out.getvalue()
    assert picture.is_file()


def test_the_first_word_is_the_folder_unless_a_flag_says(answers):
    red, _ = answers_of(answers["photos"][0])
    assert answers_of(answers["folder"][0]) == [red]


@pytest.mark.parametrize("question", ["photos", "batches of one"])
def test_broken_photos_are_named_and_left_out(answers, question):
    out, err, _ = answers[question]
    *lines, count = [line for line in err.splitlines() if "left out" in line]
    assert len(lines) == 3 and "notes.txt, not named as photos" in lines[2]
    assert count == "3 of 6 files left out"
    assert "photos/cut.png" in err and "Invalid PNG data" in err
    assert "photos/text.jpg" in err
    assert answers_of(out)[0][1][0] == ("1.000", "red.png")


def test_features_are_ranked_by_id(answers):
    out, _, failure = answers["features"]
    assert failure == ""
    # [3, 4, 0] / 5 has 0.8 along green.
    (title, rows) = answers_of(out)[0]
    assert title == '"green" among 2 images'
    assert rows == [("0.800", "red.png"), ("0.000", "../../outside")]


@pytest.mark.parametrize(
    ("question", "like"), [("trees", "features"), ("trees of captions", "id")]
)
def test_a_network_of_trees_is_asked_by_sentences(answers, question, like):
    pytest.importorskip("textblob", reason="needs the extra: tbnets[parse]")
    out, err, failure = answers[question]
    assert (err, failure) == ("", "")
    assert answers_of(out)[0] == answers_of(answers[like][0])[0]
    if question == "trees":
        _, unknown, wordless = (title for title, _ in answers_of(out))
        assert unknown.startswith('"A Blue zebra" (unknown words: a, zebra)')
        assert wordless == '"..." (no word of this is known) among 2 images'


def test_photos_like_another_one_are_ranked(answers, folder):
    out, _, failure = answers["like"]
    assert failure == ""
    (blue, by_words), (like, by_photo) = answers_of(out)
    assert blue == '"blue" among 3 images'
    assert like == f"like {folder}/photos/red.png among 3 images"
    assert by_photo == [("1.000", "red.png"), ("0.000", "green.png")]
    assert by_words[0] == ("1.000", "more/blue.png")
    assert "<p>photos like it</p>" in (folder / "like.html").read_text("utf-8")
    [(like, rows)] = answers_of(answers["like an id"][0])
    # [0.6, 0.8, 0] with itself, and with [0, 0, 1].
    assert like == "like red.png among 2 images"
    assert rows == [("1.000", "red.png"), ("0.000", "../../outside")]


def test_json_says_the_same_and_stands_alone(answers, folder):
    out, _, failure = answers["json"]
    assert failure == ""
    first, second = json.loads(out)["queries"]
    assert first == {
        "query": "red",
        "unknown_words": [],
        "note": "",
        "answers": [{"image": "red.png", "similarity": pytest.approx(1)}],
    }
    assert second["unknown_words"] == ["a", "zebra"]
    assert second["note"] == "no word of this is known"
    found = json.loads((folder / "captions.json").read_text())
    assert found["image"] == f"{folder}/photos/red.png"
    [answer] = found["answers"]
    assert answer == {
        "caption": "A RED one",
        "similarity": pytest.approx(0.728, abs=1e-3),
    }
    assert "captions.json" in answers["json of captions"][0]


@pytest.fixture(scope="module")
def model(folder):
    return load_saved_model(folder / "bytes" / "1")


def test_python_searches_as_the_tool_does(model, folder, tmp_path, capsys):
    photos = shutil.copytree(folder / "photos", tmp_path / "photos")
    [red] = model.search(["red"], photos, top=2, cache=False)
    assert not (tmp_path / "photos.tbnets").exists()
    assert model.search(["red"], photos, top=2) == [red]
    assert [similarity for _, similarity in red] == pytest.approx([1, 0])
    told = capsys.readouterr().err
    assert "3 of 6 files left out" in told
    # What is kept is what is answered by.
    (photos / "red.png").rename(tmp_path / "red.png")
    (photos / "cut.png").unlink()
    [like] = model.search(images=photos, like=[tmp_path / "red.png"])
    assert [name for name, _ in like] == [
        str(photos / name) for name in ("green.png", "more/blue.png")
    ]
    pixels = np.full((3, 3, 3), COLORS["blue"], np.uint8)
    sorts = [tmp_path / "red.png", pixels, PIL.Image.fromarray(pixels)]
    found = model.search(["red"], sorts, like=[pixels])
    order = [[image for image, _ in one] for one in found]
    assert order == [[str(tmp_path / "red.png"), 1, 2], [1, 2, order[0][0]]]


@pytest.mark.parametrize("query", ["", "un perro", "!"])
def test_python_is_warned_of_a_query_without_a_known_word(model, query):
    rows = np.eye(3, dtype=np.float32)
    with pytest.warns(UserWarning, match=f'no word of "{query}" is known'):
        found = model.search(["red", query], rows)
    assert [len(one) for one in found] == [3, 3]


def test_python_says_what_can_not_be_searched(model):
    rows = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="`images` must be what is searched"):
        model.search(["red"])
    with pytest.raises(ValueError, match="`like` must be a list"):
        model.search(like="red.png", images=rows)
    with pytest.raises(ValueError, match="`find` must .* `search`"):
        model.find(["red"], "photo.png")


def test_montage_shows_the_photos(answers, folder):
    out, _, failure = answers["montage"]
    assert failure == "" and "montage.png" in out
    with PIL.Image.open(folder / "montage.png") as montage:
        pixels = np.asarray(montage)
    reds = (pixels == COLORS["red"]).all(axis=-1)
    # red.png is 3:2 in a square of 190: 190 x 127 pixels, in both rows.
    assert abs(reds.sum() - 2 * 190 * 127) <= 2 * 190
    # An id that leaves the folder has no photo, only the grey square.
    greys = (pixels == (238, 238, 238)).all(axis=-1)
    assert greys.sum() > 2 * 190 * 190


def test_the_contact_sheet_is_beside_the_photos_unless_told(answers, folder):
    beside = folder / "photos.tbnets" / "answers.png"
    assert f"side by side: {beside}" in answers["photos"][0]
    with PIL.Image.open(beside) as sheet:
        assert sheet.format == "PNG"
    assert "side by side" not in answers["again"][0]
    elsewhere = folder / "cache" / "answers.png"
    assert f"side by side: {elsewhere}" in answers["elsewhere"][0]
    assert elsewhere.is_file()
    # Nothing is written among the user's own files.
    names = ["cut.png", "green.png", "more", "notes.txt", "red.png", "text.jpg"]
    assert sorted(os.listdir(folder / "photos")) == names


def test_where_nothing_can_be_kept_the_answers_are_the_same(answers):
    out, err, failure = answers["nowhere"]
    assert failure == ""
    assert answers_of(out) == answers_of(answers["again"][0])
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2 and "--cache" in notes[0] and "PNG" not in out


def test_page_has_a_section_for_each_query(answers, folder):
    out, _, failure = answers["page"]
    assert failure == "" and f"{folder}/page.html" in out
    text = (folder / "page.html").read_text("utf-8")
    assert text.count("<section>") == 2 and text.count("<li>") == 4
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text
    assert "<p>unknown words: script, alert, 1, script</p>" in text
    assert 'href="photos/more/blue.png"' in text
    assert "The best of 3 photos" in text


@pytest.mark.parametrize(
    ("question", "best"),
    [
        # "A RED one" has two unknown words: [3, 2, 2] / sqrt(17).
        ("photo", [("0.728", "A RED one"), ("0.000", "green")]),
        ("table", [("0.728", "A RED one"), ("0.000", "green")]),
        # [0.6, 0.8, 0] with [3, 2, 2] / sqrt(17): 3.4 / 4.123 = 0.825.
        ("id", [("0.825", "A RED one"), ("0.800", "green")]),
    ],
)
def test_captions_are_ranked_for_an_image(answers, question, best):
    out, _, failure = answers[question]
    assert failure == ""
    title, rows = answers_of(out)[0]
    assert title.endswith("among 3 captions")
    assert rows[:2] == best


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "a dog\n\n red, blue \na dog\n"),
        ("a.csv", "a dog\n\n red, blue \na dog\n"),
        ("a.csv", '\nImage;caption\nx;a dog\nx;"red, blue"\ny;a dog\n'),
        (
            "a.jsonl",
            '{"image": "x", "caption": "a dog"}\n'
            '{"caption": "red, blue", "image": "y"}\n',
        ),
    ],
)
def test_captions_are_lines_or_a_table(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = query.read_queries(tmp_path / name)
    assert found == ["a dog", "red, blue"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "image,caption\nx,a,b\n", "expected 2 columns"),
        ("a.jsonl", '{"text": "a dog"}\n', "expected a JSON object with"),
    ],
)
def test_a_broken_table_of_captions_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        query.read_queries(tmp_path / name)


@pytest.mark.parametrize("rights", [0o700, 0o750])
def test_a_contact_sheet_of_private_photos_is_private(tmp_path, rights):
    photos = tmp_path / "photos"
    photos.mkdir()
    photos.chmod(rights)
    PIL.Image.new("RGB", (30, 20), "red").save(photos / "red.png")
    options = types.SimpleNamespace(
        images=str(photos), cache=None, montage=None, queries=["red"], like=[]
    )
    order = np.zeros([1, 1], int)
    asking.write_montage(options, ["red.png"], order, np.ones([1, 1]))
    place = tmp_path / "photos.tbnets"
    assert (place / "answers.png").is_file()
    assert place.stat().st_mode & 0o7777 == rights


@pytest.mark.parametrize(
    "flags, told",
    [
        ({"montage": "photos/a.png"}, "--montage=.* among the photos"),
        ({"json": "photos/more/a.JPG"}, "--json=.* among the photos"),
        ({"cache": "photos"}, "`--cache` must .* among the photos"),
        ({"html": "like.png"}, "--html=.* which is a photo"),
        ({"html": "a", "json": "./a"}, "--json=.* that of --html"),
        ({"html": "/dev/null", "json": "/dev/null"}, ""),
        ({"cache": "photos/a.tbnets", "montage": "photos.png"}, ""),
    ],
)
def test_files_to_write_are_no_photos_and_no_other_file(
    tmp_path, monkeypatch, flags, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    given = {"images": "photos", "queries": ["a"], "like": ["like.png"]}
    options = query.Options(**given, **flags)
    if not told:
        asking.check_outputs(options)
        return
    with pytest.raises(ValueError, match=told):
        asking.check_outputs(options)


def test_of_many_questions_some_are_drawn(tmp_path, monkeypatch):
    sizes = []

    def draw(queries, ids, order, *_):
        sizes.append((len(queries), *order.shape))
        return PIL.Image.new("RGB", (1, 1))

    monkeypatch.setattr(asking.montage, "draw_montage", draw)
    options = types.SimpleNamespace(
        **{"images": str(tmp_path), "cache": None, "like": []},
        **{"montage": f"{tmp_path}/a.png", "queries": ["red"] * 300},
    )
    order = np.zeros([300, 90], int)
    asking.write_montage(options, ["a.png"], order, order)
    assert sizes == [(40, 40, 50)]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("cut photo", "cut.png', which does not decode"),
        ("unknown id", "'cow'"),
        ("like nothing", "`--like` must name a whole photo"),
        ("like nothing", "none.png', which is not there"),
        ("nothing", "`tools/query.py` must be asked by sentences"),
        ("both", "`tools/query.py` must be asked by sentences"),
        ("image alone", "`tools/query.py` must be asked by sentences"),
        ("no text", "`tools/query.py` must be asked in UTF-8"),
        ("no model", "`--model` must be a name of the zoo, or a folder"),
        ("regions", "tools/localize.py --model=scenes_localization"),
        ("no folder", "must be given a folder of photos before the sentences"),
        ("no sentence", "Received: 0 sentences"),
        ("no features", "`--image_features` must be given"),
        ("empty folder", "`--images` must be a folder of"),
        ("no captions", "`--captions` must hold a caption a line"),
        ("montage of nothing", "`--montage` must come with"),
        ("nan", "`images` must hold finite numbers. Received: nan in row 0"),
    ],
)
def test_questions_that_cannot_be_answered(answers, question, message):
    out, _, failure = answers[question]
    assert message in failure
    assert answers_of(out) == []


def test_command_line_prints_the_answer_and_nothing_else(folder):
    result = subprocess.run(
        [
            *(sys.executable, "tools/query.py", "green"),
            f"--model={folder}/features/1",
            f"--image_features={folder}/x_ims.npy",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        '"green" among 2 images\n'
        " rank  similarity  answer\n"
        "    1       0.800  red.png\n"
        "    2       0.000  ../../outside\n"
    )
