"""The page of `tbnets demo` in headless Chromium: by keyboard, and escaped."""

import shutil
import time

import pytest

from tbnets.extras import demo, loopback
from tests.extras import colour_page
from tests.extras.colour_page import CAPTIONS, COLOURS, HOSTILE, png

FOCUS = "document.activeElement"
IDLE = "!document.getElementById('answer').hasAttribute('aria-busy')"


def at(name):
    """Returns the expression of an element, by its id."""
    return f"document.getElementById('{name}')"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    made = colour_page.app(tmp_path_factory.mktemp("page"))
    app = loopback.LocalApp(made.demo, most_bytes=demo.MOST_BYTES)
    server = loopback.server_of(app)
    server.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.end()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    names = "chromium", "chromium-browser", "google-chrome"
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        try:
            opened = started.chromium.launch(executable_path=path)
        except playwright.Error as error:
            pytest.skip(f"{path} does not start: {error}")
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address):
    """Returns the page in a new tab. Nothing may be printed to its console."""
    page = browser.new_page(base_url=address)
    page.printed = []
    page.on("console", lambda message: page.printed.append(message.text))
    page.on("pageerror", lambda error: page.printed.append(str(error)))
    page.goto("/")
    wait(page, f"{IDLE} && {at('found')}.childElementCount > 0")
    yield page
    assert page.printed == []
    page.close()


def wait(page, code):
    """Waits until an expression is true.

    `page.wait_for_function` calls `eval` in the page, whose policy forbids it.
    """
    end = time.monotonic() + 60
    while not page.evaluate(code):
        assert time.monotonic() < end, f"never true: {code}"
        time.sleep(0.02)


def said(page, words):
    """Waits until what a screen reader is told has some words."""
    status = f"{at('status')}.textContent.includes({words!r})"
    wait(page, f"{status} && {IDLE}")


def texts(page, selector):
    return page.locator(selector).all_text_contents()


def tab_to(page, code):
    """Presses Tab until the focus is on what an expression says."""
    for _ in range(60):
        if page.evaluate(f"{FOCUS} === {code}"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not come to {code}")


def test_the_page_works_by_keyboard(page, tmp_path):
    assert page.evaluate(f"{FOCUS}.id") == "sentence"
    page.keyboard.insert_text("a green thing")
    page.keyboard.press("Enter")
    said(page, "The best 4 photos of 4.")
    assert texts(page, "#note[role=status]") == ["unknown words: a, thing"]
    assert page.evaluate(f"{FOCUS}.id") == "sentence"
    assert texts(page, "#found .name")[0] == "more/green.png"
    assert texts(page, "#found .similarity")[0] == "1.000"
    assert "q=a+green+thing" in page.evaluate("location.search")
    # On to the first photo, which is opened; the focus goes to its name.
    tab_to(page, f"{at('found')}.querySelector('a')")
    assert page.evaluate(f"getComputedStyle({FOCUS}).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    said(page, "The best 3 photos of 3.")
    assert page.evaluate(f"{FOCUS}.textContent") == "more/green.png"
    assert len(texts(page, "#captions li")) == 3
    # Phrases find boxes, and a line of the legend shows its box alone.
    tab_to(page, at("phrases"))
    page.keyboard.insert_text("green, a red thing; nothing")
    page.keyboard.press("Enter")
    said(page, "2 boxes for 3 phrases.")
    legend = texts(page, "#legend li")
    assert legend[0] == "1green0.500"
    assert legend[1] == "2a red thingunknown words: a, thing0.500"
    assert legend[2].startswith("3nothingno word of this is known")
    assert page.evaluate("document.querySelectorAll('#boxes g').length") == 2
    tab_to(page, f"{at('legend')}.querySelectorAll('button')[1]")
    page.keyboard.press("Enter")
    assert texts(page, "#boxes .dim") == ["1"]
    page.keyboard.press("Enter")
    assert texts(page, "#boxes .dim") == []
    # The address describes the page, so that it can be loaded again.
    page.goto(page.evaluate("location.href"))
    said(page, "2 boxes for 3 phrases.")
    page.evaluate("history.go(-2)")
    said(page, "The best 4 photos of 4.")
    assert page.evaluate(f"{at('sentence')}.value") == "a green thing"
    # A photo is given; in the dialog that Enter opens a file is chosen.
    tab_to(page, at("file"))
    (tmp_path / "own.png").write_bytes(png(COLOURS["blue"], (60, 40)))
    page.set_input_files("#file", tmp_path / "own.png")
    said(page, "The best 4 photos of 4.")
    assert page.evaluate(f"{FOCUS}.textContent") == "Your photo"
    assert texts(page, "#found .name")[0] == HOSTILE


def test_names_and_captions_are_shown_as_text(page):
    page.goto("/?q=blue")
    said(page, "The best 4 photos")
    assert texts(page, "#found .name")[0] == HOSTILE
    page.evaluate("document.querySelector('#found a').click()")
    said(page, "The best 3 photos")
    assert texts(page, "#photo-title") == [HOSTILE]
    assert sorted(texts(page, "#captions a")) == sorted(CAPTIONS)
    sentence = "</title><script>alert(1)</script>"
    page.evaluate(f"{at('sentence')}.value = {sentence!r}")
    page.evaluate("document.querySelector('#search button').click()")
    wait(page, f"{at('note')}.textContent === 'no word of this is known'")
    assert sentence in page.evaluate("document.title")
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.querySelectorAll('[onerror]').length") == 0


def test_a_dropped_photo_and_accessible_names(page):
    page.goto("/?photo=red.png&phrase=red")
    said(page, "1 box for 1 phrase.")
    session = page.context.new_cdp_session(page)
    found = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "searchbox", "image", "heading"}
    nodes = [n for n in found if n.get("role", {}).get("value") in roles]
    assert len(nodes) > 15
    names = [n["name"]["value"] for n in nodes if not n["ignored"]]
    assert "the photo red.png" in names and all(names)
    code = ", ".join(map(str, png(COLOURS["green"])))
    page.evaluate(
        "{ const given = new DataTransfer();"
        f"given.items.add(new File([new Uint8Array([{code}])], 'a.png'));"
        "document.body.dispatchEvent(new DragEvent('drop', {bubbles: true,"
        "cancelable: true, dataTransfer: given})); 0 }"
    )
    wait(page, f"{at('photo-title')}.textContent === 'Your photo' && {IDLE}")
    assert texts(page, "#found .name")[0] == "more/green.png"
    assert texts(page, "#legend li") == []


def test_errors_are_shown_and_the_next_query_works(page, tmp_path):
    (tmp_path / "own.png").write_bytes(b"no photo")
    page.set_input_files("#file", tmp_path / "own.png")
    wait(page, f"{at('error')}.textContent.includes('is not a photo')")
    page.goto("/?photo=../outside.png")
    wait(page, f"{at('error')}.textContent.includes('must be a photo of')")
    assert page.evaluate("document.getElementById('photos').hidden")
    page.evaluate(f"{at('sentence')}.focus()")
    page.keyboard.insert_text("red")
    page.keyboard.press("Enter")
    said(page, "The best 4 photos of 4.")
    assert page.evaluate(f"{at('error')}.textContent") == ""
    page.printed[:] = [x for x in page.printed if "status of 400" not in x]
