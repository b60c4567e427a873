"""The page of `tbnets demo` in headless Chromium: by keyboard, and escaped."""

import fcntl
import json
import os
import shutil
import subprocess
import time

import pytest

from tbnets.extras import loopback
from tbnets.extras.demo import demo
from tests.extras.server import shown_colours
from tests.extras.server.shown_colours import CAPTIONS, COLOURS, HOSTILE, png

FOCUS = "document.activeElement"
IDLE = "!document.getElementById('answer').hasAttribute('aria-busy')"


PATIENCE = 20
"""Seconds within which what is waited for must come."""
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
}
"""Name of a key -> its code in Windows, and the text that it makes."""


def find_chromium():
    """Returns the path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A tab of Chromium.

    Args:
        folder: empty folder for what it keeps.

    Raises:
        ConnectionError: it does not start, or ends.
    """

    def __init__(self, folder):
        (near_end, self._write), (self._read, far_end) = os.pipe(), os.pipe()
        # Chromium reads at 3 and writes at 4, which may be in use here.
        read, write = (
            fcntl.fcntl(n, fcntl.F_DUPFD, 10) for n in (near_end, far_end)
        )
        flags = "--headless=new --no-sandbox --disable-gpu --no-first-run"
        flags += " --disable-dev-shm-usage --disable-background-networking"
        flags += " --no-zygote --disable-extensions --disable-component-update"
        flags += " --disable-default-apps --disable-sync --window-size=1200,900"
        line = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", line, find_chromium(), *flags.split()),
                *("--remote-debugging-pipe", f"--user-data-dir={folder}"),
                "--no-proxy-server",
            ],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (near_end, far_end, read, write):
            os.close(one)
        self._rest, self._number, self._tab = b"", 0, {}
        self.console = []
        target = self.send("Target.createTarget", url="about:blank")
        opened = self.send("Target.attachToTarget", **target, flatten=True)
        self._tab = {"sessionId": opened["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")

    def close(self):
        """Ends it."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def send(self, method, **parameters):
        """Calls a method of the DevTools protocol; returns its result."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(asked | self._tab).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            if found.get("method") == "Log.entryAdded":
                self.console.append(found["params"]["entry"]["text"])
            if found.get("method") == "Runtime.exceptionThrown":
                self.console.append(str(found["params"]))

    def _next(self):
        while b"\0" not in self._rest:
            some = os.read(self._read, 1 << 20)
            if not some:
                raise ConnectionError("Chromium has ended")
            self._rest += some
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, code):
        """Returns the value of an expression of JavaScript."""
        found = self.send(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, code):
        """Waits until an expression is true; returns its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(code)):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.02)
        return value

    def open(self, address):
        """Opens an address, until it is loaded."""
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def press(self, key):
        """Presses a key, by its name in `KEYS`."""
        code, text = KEYS[key]
        key = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {**key, "text": text} if text else key
        for kind, what in (("keyDown", down), ("keyUp", key)):
            self.send("Input.dispatchKeyEvent", type=kind, **what)

    def type(self, text):
        """Types a text where the focus is."""
        self.send("Input.insertText", text=text)

    def tab_to(self, code, most=60):
        """Presses Tab until the focus is on what an expression says."""
        for _ in range(most):
            if self.run(f"document.activeElement === {code}"):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not come to {code}")

    def choose(self, selector, path):
        """Gives a file to an input, as its dialog does."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)
        self.send("DOM.setFileInputFiles", files=[str(path)], **node)


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
    if find_chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    try:
        opened = Browser(tmp_path_factory.mktemp("chromium"))
    except ConnectionError as error:
        pytest.skip(f"{find_chromium()} does not start: {error}")
    yield opened
    opened.close()


@pytest.fixture
def page(chromium, address):
    """Returns the browser at the beginning of the page."""
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


def test_a_photo_shows_where_the_sentence_is_found(page):
    page.open(page.run("location.origin") + "/?q=red")
    said(page, "The best 4 photos of 4.")
    page.run("document.querySelector('#found a').click()")
    said(page, "The best 3 photos of 3.")
    assert page.run(f"{at('sentence')}.value") == "red"
    assert texts(page, "#explain:not([hidden])[aria-pressed=false]")
    picture = "document.querySelector('#frame img')"
    for is_pressed in (True, False):
        page.run(f"{at('explain')}.click()")
        page.wait(f"{picture}.complete && {picture}.naturalWidth === 20")
        assert page.run(f"{picture}.src.includes('&q=red')") == is_pressed
    page.open(page.run("location.origin") + "/?photo=red.png")
    said(page, "The best 3 photos of 3.")
    assert texts(page, "#explain:not([hidden])") == []


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
