"""Tests of reading recipes, and of what is said of wrong ones."""

import contextlib

import pytest

from tbnets.data.open import Data
from tbnets.errors import InputError
from tbnets.tasks.recipes.image_features import Boxes
from tbnets.tasks.recipes.plan import RECIPES, missing, read_recipes
from tbnets.tasks.settings import command_line
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of
from tbnets.tasks.settings.settings import unused_flags
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
    folder = command_line.configs_folder() / "features"
    for path in sorted(folder.glob("*.flags")):
        words, tools = command_line.expand([f"--flagfile={path}"]), set()
        for kind in (Boxes, *RECIPES.values()):
            with contextlib.suppress(InputError):
                CommandLine(words, flags_of(kind.group)).take(kind.group)
                tools.add(kind.verb)
        assert len(tools) == 1, path


@pytest.mark.parametrize(
    "line, name",
    [
        ("--output=x", "tiny.flags:4"),
        ("word", "tiny.flags:4"),
        ("--crops=three", "--crops=three"),
        ("--image_size=-1", "--image_size"),
        ("--cnn=absent", "--cnn=absent"),
        ("--cnn_weights=absent.h5", "--cnn_weights"),
        ("--regions=boxes.flags", "--regions"),
        ("--flagfile=tiny.flags", "tiny.flags"),
        ("--flagfile=absent.flags", "--flagfile"),
        ("--layers=absent", "--layers"),
    ],
)
def test_a_wrong_line_of_a_recipe_is_named(folder, line, name):
    path = folder / "tiny.flags"
    path.write_text(f"# Tiny.\n{FEATURES}{line}\n")
    with refused(name):
        missing(opened())


@pytest.mark.parametrize(
    "text, name",
    [
        (FEATURES, "--regions"),
        (f"{FEATURES}--regions=boxes\n", "--regions"),
        (f"{FEATURES}--regions=absent.flags\n", "--regions"),
        (f"{FEATURES}--regions=tiny.flags\n", "tiny.flags:2"),
        (f"{FEATURES}--regions=boxes.flags\n--grids=2\n", "--grids"),
    ],
)
def test_a_wrong_recipe_of_regions_is_named(folder, text, name):
    (folder / "tiny_regions.flags").write_text(text)
    with refused(name):
        planned("regions", regions="tiny_regions.flags")


def test_other_files_are_not_recipes(folder):
    for flag, recipe in {
        "regions": "hub:clip",
        "trees": "hub:clip",
        "text_features": "features/tfdif.flags",
    }.items():
        with refused(f"--{flag}"):
            planned(flag, **{flag: recipe})
    settings = tiny.parse("--captions=c.csv", "--text_encoder=hub:a,b")
    with refused("--text_encoder"):
        settings.sources()


def test_flags_of_the_computation_do_not_change_the_result_folder(folder):
    (folder / "trees.flags").write_text("--parser=right_branching\n")
    one = planned("trees", trees="trees.flags")
    with (folder / "trees.flags").open("a") as file:
        file.write("--processes=2\n")
    assert planned("trees", trees="trees.flags").description == one.description
    (folder / "trees.flags").write_text("--parser=embedded\n")
    assert planned("trees", trees="trees.flags").description != one.description


def test_equal_values_give_equal_folders(folder):
    def words(line):
        (folder / "boxes.flags").write_text(f"--limit=3\n{line}\n")
        one = planned("regions", regions="tiny_regions.flags")
        return one.parts[0].recorded

    assert words("--nowhole_photo") == words("")
    assert words("--whole_photo") == {**words(""), "whole_photo": True}
    assert words("") == words("--min_area=0.005") != words("--min_area=0")


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
        unused = unused_flags(tiny.parse("--captions=c.csv", *words))
        return "images" not in unused

    assert reads_images("--image_features=a.npy, b.flags")
    assert not reads_images("--image_features=a.npy")
    regions = ("--model=hm_lstm", "--image_features=a.npy")
    assert reads_images(*regions, "--regions=b.flags")
    assert not reads_images(*regions, "--regions=b")
