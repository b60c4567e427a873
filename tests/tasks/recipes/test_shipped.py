"""Every recipe that comes along says what can be made, and serves a row."""

import functools
import pathlib

import pytest

from tbnets.data.sources import is_recipe
from tbnets.tasks.recipes.image_features import Boxes
from tbnets.tasks.recipes.kinds import KINDS
from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of

CONFIGS = command_line.configs_folder()
DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
RECIPES = sorted((CONFIGS / "features").glob("*.flags"))


def named(path):
    """Returns (flag, recipe) of the recipes that a flagfile names itself."""
    lines = path.read_text("utf-8").splitlines()
    pairs = (line.removeprefix("--").partition("=") for line in lines)
    return [
        (flag, item)
        for flag, _, items in pairs
        for item in items.split(",")
        if flag in KINDS and is_recipe(item)
    ]


find = functools.lru_cache(command_line.find_flagfile)


@functools.lru_cache
def kinds():
    """Returns {recipe: kinds of `RecipeResult` that configurations use}."""
    found = {}
    for config in sorted(CONFIGS.glob("*.flags")):
        for flag, item in named(config):
            found.setdefault(find(item), set()).add(KINDS[flag])
    for recipe in list(found):
        for _, item in named(recipe):
            found.setdefault(find(item), set()).add(Boxes)
    return found


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_has_the_flags_of_what_is_made(path):
    for kind in kinds().get(path, ()):
        words = command_line.expand([f"--flagfile={path}"])
        values = CommandLine(words, flags_of(kind.group)).take(kind.group)
        assert isinstance(values, kind.group)


def test_every_recipe_is_named_by_a_configuration_or_a_page():
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    on_pages = {
        path
        for path in RECIPES
        if f"features/{path.name}" in pages or f"`{path.stem}`" in pages
    }
    assert {*kinds()} | on_pages == {*RECIPES}
