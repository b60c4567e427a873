"""The page of `tbnets demo` in a browser: by keyboard, narrow, and escaped."""

import pytest

from tbnets.extras.demo import demo, loopback
from tests import browser
from tests.extras.server import shown_colours
from tests.extras.server.shown_colours import CAPTIONS, COLOURS, HOSTILE, png

FOCUS = "document.activeElement"
IDLE = "!document.getElementById('answer').hasAttribute('aria-busy')"


def at(name):
    """Returns the expression of an element, by its id."""
    return f"document.getElementById('{name}')"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    made = shown_colours.app(tmp_path_factory.mktemp("page"))
    app = loopback.LocalApp(made.demo, most_bytes=demo.MOST_BYTES)
    server = loopback.server_of(app)
    server.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.end()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.find_chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    try:
        opened = browser.Browser(tmp_path_factory.mktemp("chromium"))
    except ConnectionError as error:
        pytest.skip(f"{browser.find_chromium()} does not start: {error}")
    yield opened
    opened.close()


@pytest.fixture
def page(chromium, address):
    """Returns the browser at the beginning of the page."""
    chromium.resize(1200)
    chromium.console.clear()
    chromium.open(address)
    chromium.wait(f"document.readyState === 'complete' && {IDLE}")
    chromium.wait(f"{at('found')}.childElementCount > 0")
    yield chromium
    assert chromium.console == []


def said(page, words):
    """Waits until what a screen reader is told has some words."""
    page.wait(f"{at('status')}.textContent.includes({words!r}) && {IDLE}")


def texts(page, selector):
    return page.run(
        f"[...document.querySelectorAll({selector!r})].map(x => x.textContent)"
    )


def test_the_whole_page_is_walked_by_keyboard(page, tmp_path):
    assert page.run(f"{FOCUS}.id") == "sentence"
    page.type("a green thing")
    page.press("Enter")
    said(page, "The best 4 photos of 4.")
    assert texts(page, "#note[role=status]") == ["unknown words: a, thing"]
    assert page.run(f"{FOCUS}.id") == "sentence"
    assert texts(page, "#found .name")[0] == "more/green.png"
    assert texts(page, "#found .similarity")[0] == "1.000"
    assert "q=a+green+thing" in page.run("location.search")
    # On to the first photo, which is opened; the focus goes to its name.
    page.tab_to(f"{at('found')}.querySelector('a')")
    assert page.run(f"getComputedStyle({FOCUS}).outlineStyle") == "solid"
    page.press("Enter")
    said(page, "The best 3 photos of 3.")
    assert page.run(f"{FOCUS}.textContent") == "more/green.png"
    assert len(texts(page, "#captions li")) == 3
    # Phrases find boxes, and a line of the legend shows its box alone.
    page.tab_to(at("phrases"))
    page.type("green, a red thing; nothing")
    page.press("Enter")
    said(page, "2 boxes for 3 phrases.")
    legend = texts(page, "#legend li")
    assert legend[0] == "1green0.500"
    assert legend[1] == "2a red thingunknown words: a, thing0.500"
    assert legend[2].startswith("3nothingno word of this is known")
    assert page.run("document.querySelectorAll('#boxes g').length") == 2
    page.tab_to(f"{at('legend')}.querySelectorAll('button')[1]")
    page.press("Enter")
    assert texts(page, "#boxes .dim") == ["1"]
    page.press("Enter")
    assert texts(page, "#boxes .dim") == []
    # Captions of one's own.
    page.tab_to("document.querySelector('summary')")
    page.press("Enter")
    page.tab_to(at("own-captions"))
    page.type("blue\ngreen")
    page.press("Tab")
    page.press("Enter")
    page.wait(f"{at('captions')}.childElementCount === 2 && {IDLE}")
    assert texts(page, "#captions a") == ["green", "blue"]
    # The address holds it all: loaded again it shows the same, and back
    # leads through what was asked.
    page.open(page.run("location.href"))
    said(page, "2 boxes for 3 phrases.")
    assert texts(page, "#captions a") == ["green", "blue"]
    page.run("history.back()")
    page.wait(f"{at('captions')}.childElementCount === 3 && {IDLE}")
    page.run("history.go(-2)")
    said(page, "The best 4 photos of 4.")
    assert page.run(f"{at('sentence')}.value") == "a green thing"
    # A photo is given; in the dialog that Enter opens a file is chosen.
    page.tab_to(at("file"))
    (tmp_path / "own.png").write_bytes(png(COLOURS["blue"], (60, 40)))
    page.choose("#file", tmp_path / "own.png")
    said(page, "The best 4 photos of 4.")
    assert page.run(f"{FOCUS}.textContent") == "Your photo"
    assert texts(page, "#found .name")[0] == HOSTILE


def test_names_and_captions_of_others_are_text(page):
    page.open(page.run("location.origin") + "/?q=" + "blue")
    said(page, "The best 4 photos")
    assert texts(page, "#found .name")[0] == HOSTILE
    page.run("document.querySelector('#found a').click()")
    said(page, "The best 3 photos")
    assert texts(page, "#photo-title") == [HOSTILE]
    assert sorted(texts(page, "#captions a")) == sorted(CAPTIONS)
    sentence = "</title><script>alert(1)</script>"
    page.run(f"{at('sentence')}.value = {sentence!r}")
    page.run("document.querySelector('#search button').click()")
    page.wait(f"{at('note')}.textContent === 'no word of this is known'")
    assert sentence in page.run("document.title")
    assert page.run("document.scripts.length") == 1
    assert page.run("document.querySelectorAll('[onerror]').length") == 0


def test_a_photo_is_dropped_and_everything_has_a_name(page):
    page.open(page.run("location.origin") + "/?photo=red.png&phrase=red")
    said(page, "1 box for 1 phrase.")
    page.send("Accessibility.enable")
    found = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "searchbox", "image", "heading"}
    nodes = [n for n in found if n.get("role", {}).get("value") in roles]
    assert len(nodes) > 15
    names = [n["name"]["value"] for n in nodes if not n["ignored"]]
    assert "the photo red.png" in names and all(names)
    code = ", ".join(map(str, png(COLOURS["green"])))
    page.run(
        "{ const given = new DataTransfer();"
        f"given.items.add(new File([new Uint8Array([{code}])], 'a.png'));"
        "document.body.dispatchEvent(new DragEvent('drop', {bubbles: true,"
        "cancelable: true, dataTransfer: given})); 0 }"
    )
    page.wait(f"{at('photo-title')}.textContent === 'Your photo' && {IDLE}")
    assert texts(page, "#found .name")[0] == "more/green.png"
    assert texts(page, "#legend li") == []


def test_errors_are_shown_and_the_next_question_is_answered(page, tmp_path):
    (tmp_path / "own.png").write_bytes(b"no photo")
    page.choose("#file", tmp_path / "own.png")
    page.wait(f"{at('error')}.textContent.includes('is of another kind')")
    page.open(page.run("location.origin") + "/?photo=../outside.png")
    page.wait(f"{at('error')}.textContent.includes('must be a photo of')")
    assert page.run("document.getElementById('photos').hidden")
    page.run(f"{at('sentence')}.focus()")
    page.type("red")
    page.press("Enter")
    said(page, "The best 4 photos of 4.")
    assert page.run(f"{at('error')}.textContent") == ""
    page.console[:] = [x for x in page.console if "status of 400" not in x]
