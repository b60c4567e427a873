"""Tests of reading recipes, and of what is said of wrong ones."""

import contextlib

import pytest

from tbnets.data.open import Data
from tbnets.errors import InputError
from tbnets.tasks.recipes.image_features import Boxes
from tbnets.tasks.recipes.plan import RECIPES, missing, read_recipes
from tbnets.tasks.settings import flag as flags
from tbnets.tasks.settings.flag import CommandLine, flags_of
from tests import tiny
from tests.refusals import refused
from tests.tasks.recipes.test_made import (
    FEATURES,
    folder,
    opened,
    planned,
    read,
    tiny_is_known,
)

__all__ = ["folder", "tiny_is_known"]


def test_each_shipped_recipe_has_the_flags_of_one_tool():
    folder = flags.configs_folder() / "features"
    for path in sorted(folder.glob("*.flags")):
        words, tools = [f"--flagfile={path}"], set()
        for kind in (Boxes, *RECIPES.values()):
            with contextlib.suppress(InputError):
                CommandLine(words, flags_of(kind.group)).take(kind.group)
                tools.add(kind.verb)
        assert len(tools) == 1, path


@pytest.mark.parametrize(
    "flag, text, name",
    [
        ("image_features", f"{FEATURES}--output=x", "tiny.flags:3"),
        ("image_features", f"{FEATURES}--regions=boxes.flags", "--regions"),
        ("image_features", "--cnn_weights=absent.h5", "--cnn_weights"),
        ("regions", FEATURES, "--regions"),
        ("regions", f"{FEATURES}--regions=absent.flags", "--regions"),
        ("regions", f"{FEATURES}--regions=boxes.flags\n--grids=2", "--grids"),
    ],
)
def test_errors_name_the_line_or_flag_of_a_recipe(folder, flag, text, name):
    (folder / "tiny.flags").write_text(text)
    with refused(name):
        planned(flag, **{flag: "tiny.flags"})


@pytest.mark.parametrize(
    "flag, recipe",
    [("trees", "hub:clip"), ("text_features", "features/tfdif.flags")],
)
def test_other_files_are_not_recipes(folder, flag, recipe):
    with refused(f"--{flag}"):
        planned(flag, **{flag: recipe})


def test_folder_depends_on_the_values_of_flags_that_change_results(folder):
    def folder_of(line):
        (folder / "trees.flags").write_text(line)
        return planned("trees", trees="trees.flags").folder

    first = folder_of("--parser=embedded")
    assert folder_of("# Words.\n--processes=2") == first  # The default parser.
    assert folder_of("--parser=right_branching") != first


def test_network_is_built_before_any_result_is_computed(folder):
    (folder / "tiny.flags").write_text(f"{FEATURES}--layers=absent")
    with refused("--layers"):
        missing(opened())


def test_photos_are_named_by_the_run(folder):
    with refused("--images"):
        read(images="")
    (folder / "photos" / "b.png").unlink()
    with refused("b.png", kind=FileNotFoundError):
        read()


def test_photos_of_other_splits_may_be_absent(folder):
    path = folder / "captions.csv"
    path.write_text(f"{path.read_text()}d.jpg,grey,restval\n")
    assert planned().count == 3


def test_results_may_be_computed_for_one_split(folder):
    data = Data(
        opened().original_sources, plan=read_recipes, photos_of=("dev",)
    )
    [one] = data.recipe_results("image_features").values()
    assert [*one.keys] == ["b.png"]
    assert one.count == 1 and one.folder == planned().folder
    assert read_recipes("phrases", data) == {}


def test_images_are_read_where_a_recipe_needs_them():
    def reads_images(*words):
        unused = tiny.parse("--captions=c.csv", *words).unused()
        return "images" not in unused

    assert reads_images("--image_features=a.npy, b.flags")
    assert not reads_images("--image_features=a.npy")
    regions = ("--model=hm_lstm", "--image_features=a.npy")
    assert reads_images(*regions, "--regions=b.flags")
    assert not reads_images(*regions, "--regions=b")
