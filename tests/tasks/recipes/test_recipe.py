"""Tests of reading recipes, and of what is said of wrong ones."""

import pytest

from tbnets.data.open import Data
from tbnets.tasks.recipes.kinds import missing, plan
from tbnets.tasks.settings.settings import unused_flags
from tests import tiny
from tests.tasks.recipes.test_made import (
    FEATURES,
    folder,
    opened,
    planned,
    read,
    tiny_is_known,
)

__all__ = ["folder", "tiny_is_known"]


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "--output=x",
            "tiny.flags:4: expected flags of tools/extract_image_features.py "
            "that say what is made .*--cnn_weights.* found '--output=x'. Of "
            "what it is made, how and where to, the run knows",
        ),
        ("--images=photos", "tiny.flags:4: expected flags .*'--images=photos'"),
        ("--limit=3", "tiny.flags:4: .*found '--limit=3'"),
        ("word", "tiny.flags:4: .*found 'word'"),
        ("--crops=three", "tiny.flags: .*--crops=three.*one of <one|ten>"),
        ("--image_size=-1", "tiny.flags: `--image_size` must"),
        ("--cnn=absent", r"tiny.flags:\d: .*--cnn=absent"),
        ("--cnn_weights=absent.h5", "`--cnn_weights` must name a file"),
        ("--regions=boxes.flags", "tiny.flags: `--regions` must not be in a"),
        ("--flagfile=tiny.flags", "tiny.flags: expected a flagfile that does"),
        ("--flagfile=absent.flags", "`--flagfile` must be a file of flags"),
        ("--layers=absent", "tiny.flags: `--layers` must be one of .*first"),
    ],
)
def test_a_wrong_line_is_told_with_its_file(folder, line, message):
    path = folder / "tiny.flags"
    path.write_text(f"# Tiny.\n{FEATURES}{line}\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        missing(opened())


@pytest.mark.parametrize(
    "text, message",
    [
        (FEATURES, "tools/propose_regions.py, a flagfile .*: --regions=. Wri"),
        (f"{FEATURES}--regions=boxes\n", "Received: --regions=boxes. Write"),
        (
            f"{FEATURES}--regions=absent.flags\n",
            "`--regions` must name a recipe.*--regions=absent.flags",
        ),
        (
            f"{FEATURES}--regions=tiny.flags\n",
            "tiny.flags:2: expected flags of tools/propose_regions.py",
        ),
        (
            f"{FEATURES}--regions=boxes.flags\n--grids=2\n",
            "tiny_regions.flags: `--grids` must come with --region_features=",
        ),
    ],
)
def test_a_wrong_recipe_of_regions_is_told(folder, text, message):
    (folder / "tiny_regions.flags").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        planned("regions", regions="tiny_regions.flags")


def test_a_preset_that_says_too_little_is_refused(folder):
    for flag in ("regions", "trees"):
        with pytest.raises(ValueError, match=f"`--{flag}` must name a recipe"):
            planned(flag, **{flag: "hub:clip"})
    settings = tiny.parse("--captions=c.csv", "--text_encoder=hub:a,b")
    with pytest.raises(ValueError, match="`--text_encoder` must be a preset w"):
        settings.sources()


def test_a_recipe_that_is_not_there_names_the_near_ones(folder):
    with pytest.raises(
        FileNotFoundError,
        match="`--text_features` must name a recipe, a flagfile of tools/ext.*"
        "--text_features=features/tfdif.flags, looked .* features/tfidf.flags.",
    ):
        planned("text_features", text_features="features/tfdif.flags")


def test_how_work_is_done_is_not_what_decides(folder):
    (folder / "trees.flags").write_text("--parser=right_branching\n")
    one = planned("trees", trees="trees.flags")
    with (folder / "trees.flags").open("a") as file:
        file.write("--processes=2\n")
    assert planned("trees", trees="trees.flags").digest == one.digest
    (folder / "trees.flags").write_text("--parser=embedded\n")
    assert planned("trees", trees="trees.flags").digest != one.digest


def test_values_of_flags_count_however_they_are_set(folder):
    def words(line):
        (folder / "boxes.flags").write_text(f"--limit=3\n{line}\n")
        one = planned("regions", regions="tiny_regions.flags")
        return one.parts[0].recipe.words

    assert words("--nowhole_photo") == words("")
    assert words("--whole_photo") == {**words(""), "whole_photo": True}
    assert words("") == words("--min_area=0.005") != words("--min_area=0")


def test_photos_are_named_by_the_run(folder):
    with pytest.raises(ValueError, match="tiny.flags: `--images` must name"):
        read(images="")
    (folder / "photos" / "b.png").unlink()
    with pytest.raises(FileNotFoundError, match="1 of 1 are missing, first b"):
        read()


def test_photos_of_other_splits_may_be_absent(folder):
    path = folder / "captions.csv"
    path.write_text(f"{path.read_text()}d.jpg,grey,restval\n")
    assert planned().count == 3


def test_things_may_be_made_of_the_photos_of_one_split(folder):
    data = Data(opened().given, plan=plan, photos_of=("dev",))
    [one] = data.things("image_features").values()
    assert [key for key, _ in one.photos] == ["b.png"]
    assert one.count == 1 and one.digest != planned().digest
    assert plan("phrases", data) == {}


def test_images_are_read_where_a_recipe_needs_them():
    def reads_images(*words):
        unused = unused_flags(tiny.parse("--captions=c.csv", *words))
        return "images" not in unused

    assert reads_images("--image_features=a.npy, b.flags")
    assert not reads_images("--image_features=a.npy")
    regions = ("--model=hm_lstm", "--image_features=a.npy")
    assert reads_images(*regions, "--regions=b.flags")
    assert not reads_images(*regions, "--regions=b")
