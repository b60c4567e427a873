"""Pages can be read at a sitting, and what they point to is there."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
MOST_LINES = 200
ROOMS = {path.stem for path in (ROOT / "tbnets").glob("[a-z]*")}
FILES = (
    "config",
    "csv",
    "flags",
    "json",
    "jsonl",
    "md",
    "npy",
    "npz",
    "py",
    "txt",
)


def anchors(page):
    """The names by which the sections of a page are pointed to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_short_and_what_it_points_to_is_there(page):
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for place in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = place.partition("#")
        if path.startswith("http"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), place
        assert not anchor or anchor in anchors(target), place


def is_there(name):
    """Whether `room.module.Name.member` can be imported from tbnets."""
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
def test_what_a_page_names_of_the_code_is_there(page):
    text = page.read_text("utf-8")
    named = re.findall(r"`(?:tbnets\.)?(\w+(?:\.\w+)+)(?:\([^`]*)?`", text)
    for name in set(named):
        if name.split(".")[0] in ROOMS and name.split(".")[-1] not in FILES:
            assert is_there(name), name


def test_pages_that_the_code_names_are_there():
    named = set()
    for folder in ("tbnets", "tools", "configs", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".flags"):
                named |= set(
                    re.findall(r"docs/\w+\.md", path.read_text("utf-8"))
                )
    assert named and all((ROOT / page).is_file() for page in named), named
