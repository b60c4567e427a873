"""Tests of the page of `tbnets demo`: its answers, and what it refuses."""

import io
import json
import os
import threading
import urllib.request

import numpy as np
import PIL.Image
import pytest
from werkzeug.test import Client

from tbnets.cli import demo as verb
from tbnets.data.images import read_photo
from tbnets.data.store.writer import FeatureWriter
from tbnets.extras import demo, loopback
from tests import photo_files
from tests.extras import colour_page
from tests.extras.colour_page import CAPTIONS, COLOURS, HOSTILE, png
from tests.verbs import ask

LOCAL = {"Host": "127.0.0.1:8080"}
OWN = {**LOCAL, "Origin": "http://127.0.0.1:8080"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return colour_page.app(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def client(made):
    return Client(loopback.LocalApp(made.demo, most_bytes=demo.MOST_BYTES))


def get(client, path, code=200, headers=LOCAL, **query):
    """Returns the JSON that answers a GET."""
    found = client.get(path, query_string=query, headers=headers)
    assert found.status_code == code, found.text
    return json.loads(found.text)


def refused(client, path, code=400, headers=LOCAL, **query):
    """Returns what the page shows of a refusal: one line."""
    told = get(client, path, code, headers, **query)["error"]
    assert told and "\n" not in told
    return told


def give(client, content=None, code=200, **headers):
    """Returns what answers a photo that is given."""
    content = png("red") if content is None else content
    sent = {**OWN, **headers}
    sent = {name: value for name, value in sent.items() if value is not None}
    found = client.post("/photos", data=content, headers=sent)
    assert found.status_code == code, found.text
    return json.loads(found.text)


def names(found):
    return [one["image"] for one in found["answers"]]


def test_a_sentence_finds_photos(client):
    found = get(client, "/search", q="a green thing", top=2)
    assert found["unknown_words"] == ["a", "thing"]
    assert found["note"]
    # red.png, the link to it, green.png and the hostile one; not cut.png.
    assert found["among"] == 4
    assert names(found)[0] == "more/green.png"
    assert found["answers"][0]["similarity"] == pytest.approx(1)
    assert len(found["answers"]) == 2
    assert get(client, "/search", q="zebra")["note"]
    assert len(get(client, "/search", q="red", top=10**9)["answers"]) == 4
    assert len(get(client, "/search", q="red", top="x")["answers"]) == 1


def test_a_photo_finds_similar_photos_and_captions(client):
    found = get(client, "/like", photo="red.png", top=9)
    assert names(found)[0] == "in.png"
    assert len(names(found)) == found["among"] == 3
    found = get(client, "/captions", photo=HOSTILE)
    assert found["among"] == 3
    assert [one["caption"] for one in found["answers"]] == CAPTIONS[::-1][
        :1
    ] + [
        "red",
        CAPTIONS[1],
    ]
    own = get(client, "/captions", photo="red.png", caption=["blue", "red"])
    assert [one["caption"] for one in own["answers"]] == ["red", "blue"]


def test_phrases_find_boxes(client):
    found = get(client, "/boxes", photo="red.png", phrase=["red", "nothing"])
    assert (found["width"], found["height"]) == (20, 10)
    first, second = found["phrases"]
    assert first == {
        "phrase": "red",
        "unknown_words": [],
        "note": "",
        "regions": [{"box": [0, 0, 20, 10], "similarity": 0.5}],
    }
    assert second["regions"] == [] and second["note"]


def test_an_uploaded_photo_can_be_searched_with(client, made):
    key = give(client, png((0, 200, 0), (50, 40)))["photo"]
    assert names(get(client, "/like", photo=key))[0] == "more/green.png"
    found = client.get("/picture", query_string={"photo": key}, headers=LOCAL)
    assert found.mimetype == "image/jpeg"
    with PIL.Image.open(io.BytesIO(found.data)) as picture:
        assert picture.size == (50, 40)
    for number in range(demo.MOST_UPLOADED):
        give(client, png((number, 0, 0)))
    refused(client, "/like", photo=key)


def test_photos_are_dark_where_they_do_not_match(client, made):
    photo, file = PIL.Image.new("RGB", (40, 20), COLOURS["red"]), io.BytesIO()
    photo.paste(COLOURS["blue"], (20, 0, 40, 20))
    photo.save(file, "PNG")
    key = give(client, file.getvalue())["photo"]
    # Blue has the grey value 0.114 * 200, of which half is left.
    for words, right in (({}, COLOURS["blue"]), ({"q": "red"}, [11] * 3)):
        query = {"photo": key, **words}
        found = client.get("/picture", query_string=query, headers=LOCAL)
        pixels = read_photo(found.data)[10, [5, 35]]
        np.testing.assert_allclose(pixels, [COLOURS["red"], right], atol=9)
    refused(client, "/picture", photo=key, q="x" * 501)
    plain = demo.Demo(made.content._replace(explainer=None))
    plain = Client(loopback.LocalApp(plain))
    assert get(client, "/about")["explains"]
    assert not get(plain, "/about")["explains"]
    refused(plain, "/picture", photo="red.png", q="red")


HEAD, WIDTH = png("red"), (100_000).to_bytes(4, "big")
NO_PHOTOS = (
    b"",
    b"<script>alert(1)</script>",
    HEAD[:-20],
    HEAD[:16] + WIDTH + WIDTH + HEAD[24:],  # Memory for so many pixels.
)


@pytest.mark.parametrize("content", NO_PHOTOS)
def test_uploads_that_are_not_photos_are_rejected(client, content):
    assert "alert" not in give(client, content, 400)["error"]


def test_large_uploads_are_rejected(made):
    app = loopback.LocalApp(made.demo, most_bytes=50)
    give(Client(app), b"x" * 51, 413)


OUTSIDE = (
    "../outside.png",
    "out.png",
    "notes.txt",
    "/etc/passwd",
    "%2e%2e/outside.png",
    "",
    "red.png\0.png",
    "RED.png",
    "uploaded 0123456789abcdef",
    "file:///etc/passwd",
    "more/../red.png",
)
FILES = ("/page.html", "/demo.py", "/../demo.py", "//etc/passwd", "/picture/x")


def test_only_photos_of_the_folder_and_the_page_are_served(client):
    for key in OUTSIDE:
        for path in ("/picture", "/like", "/captions"):
            refused(client, path, photo=key)
    for path in FILES:
        refused(client, path, 404)


def test_a_file_that_becomes_a_link_is_no_longer_served(tmp_path):
    made = colour_page.app(tmp_path)
    client = Client(loopback.LocalApp(made.demo))
    path = tmp_path / "photos" / "red.png"
    path.unlink()
    path.symlink_to(tmp_path / "outside.png")
    refused(client, "/picture", photo="red.png")
    path.unlink()
    refused(client, "/picture", photo="red.png")


def test_photos_are_encoded_again_before_they_are_sent(client, made):
    found = client.get(
        "/picture", query_string={"photo": HOSTILE}, headers=LOCAL
    )
    pixels = read_photo(found.data)
    np.testing.assert_allclose(
        pixels, np.full((10, 20, 3), [0, 0, 200]), atol=9
    )
    refused(client, "/picture", photo="cut.png")
    refused(client, "/picture", 404, photo="red.png", side=99999)


HOSTS = (
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "127.0.0.1@evil.example",
    "[::1",
    "",
)
ORIGINS = (
    "null",
    "http://evil.example",
    "http://127.0.0.1:8081",
    "https://127.0.0.1:8080",
    "http://127.0.0.1:8080.evil.example",
)


def test_requests_from_other_pages_are_rejected(client):
    for host in HOSTS:  # A name may be rebound to this machine.
        refused(client, "/about", 403, {"Host": host})
    for origin in ORIGINS:
        give(client, None, 403, Origin=origin)
    headers = {**LOCAL, "Sec-Fetch-Site": "cross-site"}
    for path in ("/about", "/picture", "/page.js"):
        refused(client, path, 403, headers)
    assert client.get("/", headers=headers).status_code == 200  # A link.
    get(client, "/about", headers={**LOCAL, "Sec-Fetch-Site": "same-origin"})


def test_names_of_the_server():
    own = loopback.is_own_name
    assert own("localhost:8080", "127.0.0.1") and own("127.0.0.1", "127.0.0.1")
    assert own("[::1]:80", "::1") and not own("[::1]:80", "127.0.0.1")
    # For a server that others reach: its address, or its name in --host.
    assert own("192.168.1.5:8080", "0.0.0.0") and own("box.lan", "box.lan")
    assert not own("evil.example", "0.0.0.0")


def test_other_methods_are_rejected(client):
    for method in ("POST", "DELETE"):
        for path in ("/", "/about"):
            found = client.open(
                path, method=method, headers={**OWN, "Content-Length": "0"}
            )
            assert found.status_code == 405
    refused(client, "/photos", 405)


def test_all_responses_have_the_security_headers(client):
    for path in ("/", "/page.js", "/about", "/nothing", "/search"):
        found = client.get(path, headers=LOCAL)
        policy = found.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/about", headers=LOCAL).mimetype == "application/json"


def test_the_length_of_a_query_is_limited(client):
    for path, query in (
        ("/search", {}),
        ("/search", {"q": "x" * 501}),
        ("/boxes", {"photo": "red.png", "phrase": ["x"] * 51}),
        ("/captions", {"photo": "red.png", "caption": "x" * 501}),
    ):
        refused(client, path, **query)
    for text in ("\0", "\ud7ff\U0001f600", "%ff", "'; --", "a\u202eb"):
        get(client, "/search", q=text)


def test_photos_can_be_searched_while_others_are_embedded(
    tmp_path, monkeypatch
):
    content = colour_page.content_of(tmp_path, localizer=None)
    client = Client(loopback.LocalApp(demo.Demo(content)))
    assert get(client, "/search", q="red") == {
        **{"unknown_words": [], "note": "", "among": 0, "answers": []}
    }
    about = get(client, "/about")
    assert (about["photos"], about["read"]) == (5, 0)
    seen = []
    finish = FeatureWriter.finish

    def asked(writer):
        found = get(client, "/search", q="red", top=9)
        seen.append((get(client, "/about")["read"], found["among"]))
        return finish(writer)

    monkeypatch.setattr(FeatureWriter, "finish", asked)
    content.photos.embed()
    assert seen[-1] == (5, 4)
    refused(client, "/boxes", photo="red.png", phrase="x")


@pytest.fixture
def opened(monkeypatch):
    """Lets the verb open networks of colours instead of those it names."""

    def use(folder):
        model = colour_page.Colours(folder / "model")
        model.takes_captions = True
        open_named = verb.RuntimeFlags.open
        monkeypatch.setattr(
            verb.RuntimeFlags,
            "open",
            lambda asked, *more: (
                open_named(asked, *more) if asked.model == "x" else model
            ),
        )

    return use


def test_the_command_serves_until_it_is_stopped(tmp_path, monkeypatch, opened):
    host = "localhost"
    opened(tmp_path)
    folder = colour_page.write_photos(tmp_path)
    seen = []

    def embed(photos):
        [server] = [
            one for one in threading.enumerate() if "serve_forever" in one.name
        ]
        port = server._target.__self__.port
        for path in ("", "about"):
            address = f"http://{host}:{port}/{path}"
            with urllib.request.urlopen(address, timeout=20) as answer:
                seen.append(answer.read())
        raise KeyboardInterrupt

    monkeypatch.setattr(demo.Photos, "embed", embed)
    out, err, failure = ask("demo", "--port=0", f"--host={host}", folder)
    assert not failure
    assert [*photo_files.reasons(err.splitlines(), folder)] == ["out.png"]
    assert f"http://{host}:" in out
    assert seen[0].startswith(b"<!DOCTYPE html>")
    about = json.loads(seen[1])
    assert about["folder"] == str(folder) and about["captions"] == 60
    assert not (tmp_path / "photos.tbnets").exists()


def test_without_a_folder_scenes_are_drawn(tmp_path, monkeypatch, opened):
    opened(tmp_path)
    monkeypatch.setattr(verb, "NUM_SCENES", 2)
    served = []

    def serve(options, content):
        content.photos.embed()
        served.append((content, os.path.isdir(content.photos.folder)))

    monkeypatch.setattr(verb, "serve", serve)
    assert ask("demo", "--host=0.0.0.0") == ("", "", "")
    [(content, was_there)] = served
    assert len(content.photos) == 2 and 8 <= len(content.captions) <= 12
    assert not any(" ." in one for one in content.captions)
    assert content.about["model"] == "scenes_embedding" and was_there
    assert not os.path.exists(content.photos.folder)
