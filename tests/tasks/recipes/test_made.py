"""Tests of what recipes make of photos, and where that is kept."""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.data.store import locks
from tbnets.data.store.manifest import MANIFEST
from tbnets.data.store.npy import HEADER_BYTES
from tbnets.data.store.reader import open_store
from tbnets.errors import InputError
from tbnets.features import extraction
from tbnets.files import try_lock
from tbnets.tasks.recipes import plan, recipe
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
    """Makes numbers up, where it does not matter which these are."""

    def extract(photos, features, writer, progress, **_):
        left = [key for key, _ in extraction.remaining(photos, writer)]
        writer.add(left, np.ones((len(left), features.dim)))
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
        "captions_format": "table",
        "images": "photos",
        "image_features": "tiny.flags",
        **sources,
    }
    unused = {"regions", "text_features", "trees"} - given.keys()
    planned = functools.partial(read_recipes, unused=unused)
    return Data(Sources(**given), plan=planned)


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


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_features_are_those_of_the_tool_and_made_once(folder, by_tool, capsys):
    data = opened()
    [one] = missing(data)
    rows = data.split("train").images
    assert files(one.folder) == files(by_tool)
    assert one.folder.parent.samefile(folder / "data" / "made")
    assert open_store(one.folder).ids == NAMES and rows.shape == (3,)
    assert str(one.folder) in capsys.readouterr().err
    again = opened(image_features="tiny.flags, tiny.flags")
    assert missing(again) == []
    assert again.split("test").images.shape == (6,)
    assert capsys.readouterr().err == ""


def test_features_of_regions_of_a_recipe_of_boxes(folder):
    pytest.importorskip("cv2")
    data = opened(regions="tiny_regions.flags")
    boxes, features = [
        one for one in missing(data) if one.flagfile.stem != "tiny"
    ]
    store, rows = data.split("dev").regions
    assert store.ids[rows[0]] == "b.png" and store.dim == 6
    verbs.ask(
        "propose_regions",
        "--images=photos",
        "--captions=captions.csv",
        "--limit=3",
        "--output=boxes",
    )
    assert files(boxes.folder) == files(folder / "boxes")
    extract("store", folder, "--regions=boxes", "--layers=second")
    assert files(features.folder) == files(folder / "store")
    made_by = open_store(features.folder).made_by
    assert made_by["proposals"]["limit"] == 3
    # Of what is made of them, boxes need not be kept.
    (boxes.folder / MANIFEST).unlink()
    assert features.missing() == []
    # Other boxes are other features; another name of the same is not.
    (folder / "more.flags").write_text("--limit=3\n")
    changed = REGIONS.replace("boxes", "more")
    (folder / "tiny_regions.flags").write_text(changed)
    same = planned("regions", regions="tiny_regions.flags")
    assert same.digest == features.digest
    (folder / "more.flags").write_text("--limit=4\n")
    other = planned("regions", regions="tiny_regions.flags")
    assert other.digest != features.digest


def test_a_digest_tells_all_that_decides(folder, monkeypatch):
    digest = planned().digest
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "FORM", recipe.FORM + 1)
        assert planned().digest != digest
    (folder / "tiny.flags").write_text(f"{FEATURES}--crops=one\n# Words.\n")
    assert planned().digest == digest  # It is the default.
    (folder / "photos" / "d.jpg").write_bytes(photo(4))
    assert planned().digest == digest  # No caption names it.
    (folder / "tiny.flags").write_text(f"{FEATURES}--crops=ten\n")
    assert planned().digest != digest
    (folder / "tiny.flags").write_text(FEATURES)
    with open(folder / "photos" / "a.jpg", "ab") as file:
        file.write(b"more")
    assert planned().digest != digest


def test_weights_count_by_their_content(folder):
    flags = FEATURES.replace("random", "{}.h5")
    digests = []
    for name, content in (("one", b"1"), ("two", b"1"), ("two", b"2")):
        (folder / f"{name}.h5").write_bytes(content)
        (folder / "tiny.flags").write_text(flags.format(name))
        digests.append(planned().digest)
    assert digests[0] == digests[1] != digests[2]


def test_what_a_kill_left_goes_on(folder, quick):
    one = planned()
    extract(one.folder, folder, "--splits=train")
    manifest = json.loads((one.folder / MANIFEST).read_text())
    manifest["complete"] = False
    (one.folder / MANIFEST).write_text(json.dumps(manifest))
    before = (one.folder / "features.npy").read_bytes()
    assert opened().split("test").images.shape == (3,)
    assert open_store(one.folder).ids == NAMES
    after = (one.folder / "features.npy").read_bytes()
    assert after[HEADER_BYTES : len(before)] == before[HEADER_BYTES:]


def test_a_second_process_waits_for_the_first(
    folder, by_tool, monkeypatch, capsys
):
    one, told = planned(), []
    one.folder.parent.mkdir(parents=True)
    lock = open(one.folder.parent / f".{one.folder.name}.lock", "wb")
    assert try_lock(lock.fileno())

    def make_meanwhile(_):
        told.append(capsys.readouterr().err)
        shutil.copytree(by_tool, one.folder)
        lock.close()

    monkeypatch.setattr(locks.time, "sleep", make_meanwhile)
    monkeypatch.setattr(type(one), "make", None)
    one.make_if_missing()
    assert str(one.folder) in told[0]


def test_a_root_that_can_not_be_written_is_read(folder, by_tool):
    (folder / "root").mkdir()
    shutil.copytree(by_tool, f"root/made/{planned().folder.name}")
    there = planned(data_root="root").folder
    assert there.parent.samefile(folder / "root" / "made")
    (folder / "other").mkdir()
    (folder / "other" / "made").touch()
    here = planned(data_root="other").folder
    assert here.parent == pathlib.Path("data", "made")
    (folder / "kept").mkdir(mode=0o555)  # Of root, too, who could write.
    assert planned(data_root="kept").folder == here
    (folder / "data").mkdir()
    (folder / "data" / "made").touch()
    beside = planned(data_root="other").folder
    assert beside.parent == pathlib.Path("made")
    (folder / "made").touch()
    with refused("--data_root"):
        planned(data_root="other").missing()


def test_what_is_damaged_names_the_folder_to_remove(folder, by_tool):
    one = planned()
    shutil.copytree(by_tool, one.folder)
    path = one.folder / "features.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    manifest = one.folder / MANIFEST
    for spoil in (
        lambda: None,
        lambda: manifest.write_text("{"),
        manifest.unlink,
    ):
        spoil()
        with pytest.raises(InputError, match=f"{one.folder}"):
            read()


def test_a_model_that_learned_from_others_refuses_what_is_made(folder, quick):
    data, made_by = opened(), {"cnn": "another"}
    data.check_made_by("image_features", ["train"], made_by, "best.npz")
    with refused("--image_features"):
        data.open_features("image_features", "train")
    with refused("--image_features"):
        opened().check_made_by("image_features", ["dev"], made_by, "best.npz")


def test_dry_run_lists_missing_results_and_computes_nothing(folder, capsys):
    (folder / "trees.flags").write_text("--parser=right_branching\n")
    (folder / "words.flags").write_text("--features=tfidf\n")
    data = opened(trees="trees.flags", text_features="words.flags")
    text = plan.describe(missing(data))
    assert planned().folder.name in text and "3 photos" in text
    assert text.count("3 texts") == 2
    assert not (folder / "data").exists()
    assert capsys.readouterr() == ("", "")
