"""Each public name, page and configuration has its place in the site.

`mkdocs build` checks links and anchors; CI runs it.
"""

import ast
import json
import pathlib
import re
import types

import pytest
from site_making import hook

import tbnets

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAVIGATION = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = hook.made_pages()


def test_every_public_name_has_a_page_in_a_group():
    listed = [name for names in hook.api_groups().values() for name in names]
    assert set(tbnets.__all__) <= set(listed)
    assert len(listed) == len(set(listed))
    for name in listed:
        page = PAGES[hook.page_of(name)]
        assert page.startswith(f"::: tbnets.{name}\n")
        listed_as = re.escape(f"- [`{name}`][tbnets.{name}]: ")
        assert re.search(rf"^{listed_as}[A-Z`]", PAGES[hook.API], re.M)


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"[\w/]+\.md", NAVIGATION)
    docs = (path.name for path in (ROOT / "docs").glob("*.md"))
    by_itself = {hook.ZOO, *hook.CARDS}
    made = (name for name in PAGES if name.endswith(".md"))
    made = (name for name in made if not name.startswith("api/"))
    assert sorted(listed) == sorted({*docs, *made} - by_itself)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.flags")))
def test_every_configuration_is_told_of(path):
    page = PAGES[hook.CONFIGURATIONS]
    section = page.partition(f"\n### {path.stem}\n")[2].partition("\n### ")[0]
    text = path.read_text("utf-8")
    for line in text.splitlines():
        told = re.sub(r"^#\s+(Command: )?", "", line)
        assert told in re.sub(r"\s+", " ", section), line


def test_links_lead_to_the_page_of_the_site():
    assert hook.site_link("README.md", "docs/zoo.md#a") == "zoo.md#a"
    assert hook.site_link("zoo.md", "../model_zoo/README.md") == hook.ZOO
    assert hook.site_link("recipes.md", "../configs") == hook.CONFIGURATIONS
    card = hook.CARDS[0]
    assert hook.site_link(card, "../../docs/zoo.md") == "../../zoo.md"
    for link in ("https://example.org/a.md", "#here", "zoo.md"):
        assert hook.site_link("search.md", link) == link


def test_names_in_pages_lead_to_the_api():
    text = "`tbnets.Branch` [`tbnets.Branch`](losses.md) `tbnets.branch`"
    linked = hook.site_text("library.md", text)
    assert linked == "[`tbnets.Branch`][tbnets.Branch]" + text[15:]


def test_flagfiles_in_pages_lead_to_the_configurations():
    assert len(set(hook.STEMS)) == len(hook.STEMS)
    for name in ("configs/quickstart.flags", "features/lite0.flags"):
        wanted = f"configurations.md#{pathlib.Path(name).stem}"
        text = hook.site_text("zoo.md", f"`{name}`")
        assert text == f"[`{name}`]({wanted})"
    assert hook.site_text("zoo.md", "`run.flags`") == "`run.flags`"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/notebooks").iterdir()))
def test_a_page_has_all_cells_of_its_notebook(path):
    page = PAGES[f"notebooks/{path.stem}.md"]
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        assert "".join(cell["source"]) in page


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")))
def test_code_in_a_page_names_what_there_is(path):
    for block in BLOCK.findall(path.read_text("utf-8")):
        named = {
            node.attr
            for node in ast.walk(ast.parse(block))
            if isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "tbnets"
        }
        assert named <= {*tbnets.__all__}


def test_the_navigation_names_the_api_and_the_models():
    config = types.SimpleNamespace(nav=["API", "The zoo's models", {"A": []}])
    api, models, other = hook.on_config(config).nav
    assert api["API"][0] == hook.API and len(api["API"]) > 5
    assert models["The zoo's models"] == [hook.ZOO, *hook.CARDS]
    assert other == {"A": []}


def test_docstrings_become_markdown():
    pytest.importorskip("griffe")  # The extra `docs` brings it.
    from site_making.docstrings import as_markdown

    text = "Does.\n\nExample:\n    `f()`\n\nSource: a paper, Eq. 1.\n"
    assert as_markdown(text) == (
        "Does.\n\nExample:\n    ```python\n    `f()`\n    ```\n\n"
        "*Source*:\na paper, Eq. 1.\n\n"
    )
    assert as_markdown("A `Branch`.") == "A [`Branch`][tbnets.Branch].\n"
