"""Every shipped recipe has flags of the tool that it is for."""

import contextlib

import pytest

from tbnets.errors import InputError
from tbnets.tasks.recipes.image_features import Boxes
from tbnets.tasks.recipes.plan import RECIPES
from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of

SHIPPED = sorted((command_line.configs_folder() / "features").glob("*.flags"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_recipe_has_the_flags_of_one_tool(path):
    words = command_line.expand([f"--flagfile={path}"])
    tools = set()
    for kind in (Boxes, *RECIPES.values()):
        with contextlib.suppress(InputError):
            CommandLine(words, flags_of(kind.group)).take(kind.group)
            tools.add(kind.verb)
    assert len(tools) == 1
