"""Checks that the site has each public name, page and configuration.

`mkdocs build`, which CI runs, checks links and anchors.
"""

import pathlib
import re

from site_making import hook

import tbnets

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAVIGATION = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
PAGES = hook.made_pages()


def test_every_public_name_has_a_page():
    listed = [name for names in hook.api_groups().values() for name in names]
    assert set(tbnets.__all__) <= set(listed)
    assert len(listed) == len(set(listed))
    for name in listed:
        page = PAGES[hook.page_of(name)]
        assert page.startswith(f"::: tbnets.{name}\n")


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"[\w/]+\.md", NAVIGATION)
    docs = (path.name for path in (ROOT / "docs").glob("*.md"))
    generated_navigation = {hook.ZOO, *hook.CARDS}
    made = (name for name in PAGES if name.endswith(".md"))
    made = (name for name in made if not name.startswith("api/"))
    assert sorted(listed) == sorted({*docs, *made} - generated_navigation)
