"""Tests of the results of recipes, and of the cache that holds them."""

import itertools
import pathlib
import shutil

import numpy as np
import pytest

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.data.store.reader import open_features
from tbnets.features import extraction
from tbnets.tasks.recipes import plan
from tbnets.tasks.recipes.plan import missing, read_recipes
from tests import verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.refusals import refused

FEATURES = f"--cnn={tiny_cnn.NAME}\n--cnn_weights=random\n"
REGIONS = f"{FEATURES}--regions=boxes.flags\n--layers=second\n"
NAMES = ("a.jpg", "b.png", "more/c.jpg")


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known(module_eagerly):
    with tiny_cnn.known():
        yield


@pytest.fixture(scope="module")
def by_tool(tmp_path_factory):
    """The store of `FEATURES` of all photos that the tool makes."""
    place = write_given(tmp_path_factory.mktemp("by_tool"))
    extract(place / "store", place)
    return place / "store"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the start, with photos, captions and recipes."""
    monkeypatch.chdir(tmp_path)
    return write_given(tmp_path)


@pytest.fixture
def quick(monkeypatch):
    """Replaces features by the number of the call that computes them."""
    calls = itertools.count(1)

    def extract(photos, features, writer, progress, **_):
        left = [key for key, _ in extraction.remaining(photos, writer)]
        writer.add(left, np.full((len(left), features.dim), next(calls)))
        progress(len(left))
        return []

    monkeypatch.setattr(extraction, "extract_photos", extract)


def write_given(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        format = "PNG" if name.endswith("png") else "JPEG"
        (tmp_path / "photos" / name).write_bytes(photo(i, format=format))
    rows = zip(NAMES, ("red", "blue", "green"), ("train", "dev", "test"))
    lines = ["image,caption,split", *map(",".join, rows), ""]
    (tmp_path / "captions.csv").write_text("\n".join(lines))
    (tmp_path / "tiny.flags").write_text(f"# Tiny.\n{FEATURES}")
    (tmp_path / "tiny_regions.flags").write_text(REGIONS)
    (tmp_path / "boxes.flags").write_text("--limit=3\n")
    return tmp_path


def opened(**sources):
    """Returns the `Data` of a run on these photos."""
    given = {
        "captions": "captions.csv",
        "images": "photos",
        "image_features": "tiny.flags",
        **sources,
    }
    return Data(Sources(**given), plan=read_recipes)


def planned(flag="image_features", **sources):
    """Returns the `Recipe` that a flag names."""
    data = opened(**sources)
    [one] = data.recipe_results(flag).values()
    return one


def read(**sources):
    """Returns features of the training split, made if need be."""
    return opened(**sources).split("train").images


def extract(output, given, *flags):
    """Makes a store by the tool."""
    verbs.ask(
        "extract_image_features",
        f"--images={given / 'photos'}",
        f"--captions={given / 'captions.csv'}",
        f"--cnn={tiny_cnn.NAME}",
        "--cnn_weights=random",
        f"--output={output}",
        *flags,
    )


def assert_equal(features, other, ids=NAMES):
    """Two `Features` have the same rows for some ids."""
    rows = (x.take(x.rows(ids)) for x in (features, other))
    np.testing.assert_array_equal(*rows)


def test_features_equal_those_of_the_tool_and_are_computed_once(
    folder, by_tool, capsys
):
    data = opened()
    [recipe] = missing(data)
    rows = data.split("train").images
    assert_equal(rows.features, open_features(by_tool))
    assert recipe.folder.parent.samefile(folder / "data" / "made")
    assert rows.shape == (3,)
    assert str(recipe.folder) in capsys.readouterr().err
    again = opened(image_features="tiny.flags, tiny.flags")
    assert missing(again) == []
    assert again.split("test").images.shape == (6,)
    assert capsys.readouterr().err == ""


def test_region_features_equal_those_of_the_tools(folder):
    pytest.importorskip("cv2")
    data = opened(regions="tiny_regions.flags")
    boxes, features = [x for x in missing(data) if x.flagfile.stem != "tiny"]
    store, rows = data.split("dev").regions
    assert store.rows(["b.png"]) == rows and store.dim == 6
    verbs.ask(
        "propose_regions",
        "--images=photos",
        "--captions=captions.csv",
        "--limit=3",
        "--output=boxes",
    )
    extract("store", folder, "--regions=boxes", "--layers=second")
    by_tool = open_features("store")
    for name in NAMES:
        pairs = zip(*(x.regions(*x.rows([name])) for x in (store, by_tool)))
        for arrays in pairs:
            np.testing.assert_array_equal(*arrays)
    assert store.made_by["proposals"]["limit"] == 3
    # Features remain when the boxes are removed.
    shutil.rmtree(boxes.folder)
    assert features.missing() == []
    # Other boxes are other features, but their recipe may have another name.
    (folder / "more.flags").write_text("--limit=3\n")
    changed = REGIONS.replace("boxes", "more")
    (folder / "tiny_regions.flags").write_text(changed)
    same = planned("regions", regions="tiny_regions.flags")
    assert same.description == features.description
    (folder / "more.flags").write_text("--limit=4\n")
    other = planned("regions", regions="tiny_regions.flags")
    assert other.description != features.description


def test_weights_count_by_their_content(folder):
    flags = FEATURES.replace("random", "{}.h5")
    descriptions = []
    for name, content in (("one", b"1"), ("two", b"1"), ("two", b"2")):
        (folder / f"{name}.h5").write_bytes(content)
        (folder / "tiny.flags").write_text(flags.format(name))
        descriptions.append(planned().description)
    assert descriptions[0] == descriptions[1] != descriptions[2]


def test_only_new_and_changed_photos_are_extracted(
    folder, by_tool, monkeypatch
):
    photos, extracted = folder / "photos", []
    extract_photos = extraction.extract_photos

    def noted(photos, *rest, writer, **options):
        left = extraction.remaining(photos, writer)
        extracted.append(sorted(path.name for _, path in left))
        return extract_photos(photos, *rest, writer=writer, **options)

    monkeypatch.setattr(extraction, "extract_photos", noted)
    read()
    path = photos / "a.jpg"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)  # Its size is the same.
    (photos / "b.png").rename(photos / "renamed.png")
    (photos / "new.jpg").write_bytes(photo(7))
    captions = (folder / "captions.csv").read_text()
    captions = captions.replace("b.png", "renamed.png") + "new.jpg,x,test\n"
    (folder / "captions.csv").write_text(captions)
    found = read()
    assert extracted == [["a.jpg", "b.png", "c.jpg"], ["a.jpg", "new.jpg"]]
    new, old = found.features, open_features(by_tool)
    np.testing.assert_array_equal(
        new.take(new.rows(["renamed.png", "more/c.jpg"])),
        old.take(old.rows(["b.png", "more/c.jpg"])),
    )
    assert planned().missing() == []


def test_results_are_read_from_any_cache_and_written_to_the_first_writable(
    folder, quick
):
    read()
    (folder / "root").mkdir()
    shutil.move("data/made", "root/made")
    there = planned(data_root="root")
    assert there.missing() == []
    assert there.folder.parent.samefile(folder / "root" / "made")
    (folder / "other").mkdir()
    (folder / "other" / "made").touch()
    here = planned(data_root="other").folder
    assert here.parent == pathlib.Path("data", "made")
    (folder / "kept").mkdir(mode=0o555)  # Of root, too, who could write.
    assert planned(data_root="kept").folder == here
    shutil.rmtree("data", ignore_errors=True)
    (folder / "data").mkdir()
    (folder / "data" / "made").touch()
    beside = planned(data_root="other").folder
    assert beside.parent == pathlib.Path("made")


def test_features_must_match_those_of_the_trained_model(folder, quick):
    data, made_by = opened(), {"cnn": "another"}
    data.expect_made_by("image_features", made_by, "best.npz")
    with refused("--image_features"):
        data.open_features("image_features", "train")


def test_dry_run_lists_missing_results_and_computes_nothing(folder, capsys):
    (folder / "trees.flags").write_text("--parser=right_branching\n")
    (folder / "words.flags").write_text("--features=tfidf\n")
    data = opened(trees="trees.flags", text_features="words.flags")
    text = plan.describe(missing(data))
    assert planned().folder.name in text and "3 photos" in text
    assert text.count("3 texts") == 2
    assert not (folder / "data").exists()
    assert capsys.readouterr() == ("", "")
