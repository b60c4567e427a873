"""Tests of the HTML page of results, which loads and executes nothing."""

import base64
import html.parser
import io
import os
import urllib.parse

import PIL.Image
import pytest

from tbnets.visualization import page

NASTY = '"><script>alert(1)</script>&amp; häß ✓ #1%20?.png'


class Reader(html.parser.HTMLParser):
    """Reads a page: its elements with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    PIL.Image.new("RGB", (900, 300), "red").save(folder / "sub" / "wide.png")
    PIL.Image.new("RGB", (8, 4), "blue").save(folder / "small.png")
    return folder


def write(path, folder, *image_ids, query="a dog", note=""):
    values = [1 - 0.25 * i for i in range(len(image_ids))]
    section = page.Section(query, note, list(image_ids), values)
    page.write_page(path, [section], folder, "about <it>")
    text = path.read_text("utf-8")
    read = Reader(text)
    assert read.open == []
    return text, read


def test_a_photo_has_rank_similarity_name_link_and_thumbnail(folder, tmp_path):
    _, read = write(tmp_path / "a.html", folder, "sub/wide.png", "small.png")
    words = " ".join("".join(read.words).split())
    assert words.endswith("a dog 1 1.000 sub/wide.png 2 0.750 small.png")
    names = ["sub/wide.png", "small.png"]
    assert [img["alt"] for img in read.all("img")] == names
    links = [f"photos/{name}" for name in names]
    assert [a["href"] for a in read.all("a")] == links
    sizes = []
    for img in read.all("img"):
        kind, _, code = img["src"].partition(";base64,")
        assert kind == "data:image/jpeg"
        with PIL.Image.open(io.BytesIO(base64.b64decode(code))) as photo:
            sizes.append(photo.size)
    # 900 x 300 in a square of 400; what is smaller stays as it is.
    assert sizes == [(400, 133), (8, 4)]


@pytest.mark.parametrize("name", [NASTY, "a:b.png", "javascript:1.png"])
def test_all_text_is_escaped(tmp_path, name):
    folder = tmp_path / NASTY.replace(".png", "").replace("/", "")
    folder.mkdir()
    (folder / os.path.dirname(name)).mkdir(exist_ok=True, parents=True)
    PIL.Image.new("RGB", (8, 4), "blue").save(folder / name)
    for path in (folder / "in.html", tmp_path / "out.html"):
        text, read = write(path, folder, name, query=NASTY, note=NASTY)
        assert not read.all("script") and "<script" not in text
        assert NASTY in "".join(read.words)
        assert read.all("img")[0]["alt"] == name
        # The link leads to the file.
        (link,) = [a["href"] for a in read.all("a")]
        url = urllib.parse.urljoin(path.as_uri(), link)
        found = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
        assert found == str(folder / name)


def test_the_page_loads_nothing(folder, tmp_path):
    text, read = write(
        tmp_path / "a.html", folder, "small.png", query="see http://x.y/z.png"
    )
    for tag, attributes in read.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "srcset", "action", "data", "style"):
                assert tag == "a" or value.startswith("data:")
            assert not name.startswith("on")
    assert not read.all("link") and not read.all("script")
    assert "url(" not in text and "@import" not in text
    (policy,) = [
        meta["content"]
        for meta in read.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("name", ["absent.png", "../outside.png", "cut.png"])
def test_a_broken_photo_is_listed_without_a_picture(folder, tmp_path, name):
    PIL.Image.new("RGB", (8, 4)).save(tmp_path / "outside.png")
    (folder / "cut.png").write_bytes(b"no photo")
    _, read = write(tmp_path / "a.html", folder, name, "small.png")
    assert len(read.all("img")) == len(read.all("a")) == 1
    assert "no photo" in read.words
