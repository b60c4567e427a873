"""Checks the links, names and code references of pages."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
PACKAGES = {path.stem for path in (ROOT / "tbnets").glob("[a-z]*")}
FILES = {"config", "csv", "flags", "json", "jsonl", "md"}
FILES |= {"npy", "npz", "py", "tflite", "txt"}
NAME = re.compile(r"`(?:tbnets\.)?(\w+(?:\.\w+)+)(?:\([^`]*)?`")


def anchors(page):
    """Returns the anchors of the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def exists(name):
    """Returns whether tbnets has `package.module.Name.member`."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(f"tbnets.{'.'.join(parts[:count])}")
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_names_of_a_page_exist(page):
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if not path.startswith("http"):
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
    for name in set(NAME.findall(text)):
        parts = name.split(".")
        if parts[0] in PACKAGES and parts[-1] not in FILES:
            assert exists(name), name


def test_pages_that_the_code_names_exist():
    named = set()
    for folder in ("tbnets", "tools", "configs", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".flags"):
                text = path.read_text("utf-8")
                named |= {*re.findall(r"docs/\w+\.md", text)}
    assert named and all((ROOT / page).is_file() for page in named), named
