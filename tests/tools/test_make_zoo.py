"""A run becomes a folder of the zoo, or is refused; nothing is half made."""

import json
import shutil

import keras
import numpy as np
import pytest
from zoo_making import cards

from tbnets.serving import saved_files, zoo
from tbnets.serving.checksums import write_checksums
from tbnets.tasks.settings.records import FLAGFILE
from tests import fresh, tiny, verbs
from tests.eager import without_tracing

CARD = """# tiny

Words for
numbers.

## Data and terms

Made up.

## Not for

Anything.
"""


def tool(*arguments):
    return verbs.run("make_zoo", *arguments)


def anew(*arguments):
    """Calls the tool where a network's layers are named as in training."""
    return fresh.run("tools/make_zoo.py", *arguments)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("data"))
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    line = tiny.arguments(folder, run_dir, epochs=1).items()
    flags = (f"--{name}={value}" for name, value in line)
    with without_tracing():
        trained = verbs.train(*flags)
    assert trained.returncode == 0, trained.stderr
    return run_dir


@pytest.fixture(scope="module")
def made(run_dir, tmp_path_factory):
    """Returns the zoo with the run's model, and what the tool said."""
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "card.md").write_text(CARD)
    ended = anew(
        *(f"--zoo={folder / 'zoo'}", f"--run_dir={run_dir}", "--name=tiny"),
        *(f"--card={folder / 'card.md'}", "--table", "--most_lost=5"),
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "zoo", ended.stdout


def test_a_run_becomes_a_model(made, run_dir):
    folder, said = made
    model = zoo.open_model(folder / "tiny")
    assert model.embed_text(["dog"]).shape == (1, 4)
    assert "as exported" in said and "MB" in said
    metrics = json.loads((folder / "tiny" / "metrics.json").read_text())
    report = json.loads((run_dir / "metrics.json").read_text())
    assert metrics["run_recall_sum"] == report["test"]["recall_sum"]
    assert metrics["test"].keys() == report["test"].keys()
    assert metrics["command"].endswith("model_zoo/tiny/tiny.flags")


def test_the_card_has_what_was_written_and_what_was_measured(made):
    card = (made[0] / "tiny" / "README.md").read_text()
    assert card.startswith(CARD.strip())
    assert 'tbnets.zoo.load("tiny")' in card
    assert "12 captions, 6 images" in card
    page = (made[0] / "README.md").read_text()
    assert "[tiny](tiny/README.md)" in page and "Words for numbers." in page


def test_nothing_tells_of_the_machine(made, run_dir):
    for file in zoo.model_files(made[0] / "tiny").values():
        content = file.read_bytes()
        for place in (run_dir.parent.parent, made[0], "/root", "/home"):
            assert str(place).encode() not in content, file


def test_an_edited_card_is_renewed(made):
    folder = made[0]
    card = folder / "tiny" / "README.md"
    before = card.read_text()
    card.write_text(before.replace("Made up.", "Made up, by us."))
    with pytest.raises(ValueError, match="README.md was changed"):
        zoo.open_model(folder / "tiny")
    assert tool(f"--zoo={folder}", "--name=tiny").returncode == 0
    zoo.check_files(folder / "tiny")
    assert card.read_text() == before.replace("Made up.", "Made up, by us.")
    metrics = folder / "tiny" / "metrics.json"
    metrics.write_text(metrics.read_text() + "\n")
    ended = tool(f"--zoo={folder}", "--name=tiny")
    assert "where metrics.json was too" in ended.stderr
    metrics.write_text(metrics.read_text()[:-1])
    zoo.check_files(folder / "tiny")


def test_a_model_that_lost_too_much_is_not_made(made, run_dir, tmp_path):
    report = json.loads((run_dir / "metrics.json").read_text())
    other = tmp_path / "run"
    other.mkdir()
    for path in run_dir.iterdir():
        if path.name != "metrics.json":
            (other / path.name).symlink_to(path)
    report["test"]["recall_sum"] += 100
    (other / "metrics.json").write_text(json.dumps(report))
    kept = (made[0] / "tiny" / zoo.CHECKSUMS).read_text()
    ended = tool(f"--zoo={made[0]}", f"--run_dir={other}", "--name=tiny")
    assert "error: `--most_lost` must be" in ended.stderr
    assert (made[0] / "tiny" / zoo.CHECKSUMS).read_text() == kept
    assert {path.name for path in made[0].iterdir()} == {"tiny", "README.md"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--run_dir=runs/x"], "`--name` must be given"),
        ([], "`--name` must be given"),
        (["--name=a/b"], "must be letters, digits"),
    ],
)
def test_flags_that_make_nothing_are_refused(arguments, said):
    ended = tool(*arguments)
    assert ended.returncode == 1 and said in ended.stderr


LOCALIZED = {
    "phrase_to_region/recall_at_1": 0.25,
    "phrase_to_region/recall_at_5": 0.5,
    "phrase_to_region/recall_at_10": 0.75,
    "phrase_to_region/upper_bound": 0.875,
    "phrase_to_region/mean_average_precision": 0.125,
    "phrase_to_region/num_queries": 8.0,
}


def localized(takes):
    """Returns the `metrics.json` of a model of phrase localization."""
    return {
        "test": LOCALIZED,
        "takes": takes,
        "test_split": {"name": "test", "photos": 2, "phrases": 8},
        "run_recall_sum": cards.recall_sum(LOCALIZED),
        "command": "python tools/train.py --flagfile=configs/x.flags",
        **{"epochs": 3, "best_epoch": 2, "train_seconds": 90},
        **{"date": "2026-01-02", "embedding_dim": 4},
        "versions": {"tensorflow": "2", "keras": "3"},
    }


def test_the_recall_sum_of_localization_is_that_of_its_recalls():
    # 25 + 50 + 75.
    assert cards.recall_sum(LOCALIZED) == 150
    assert cards.recall_sum({"recall_sum": 300.5}) == 300.5


@pytest.mark.parametrize(
    "takes, used",
    [
        ("photos with boxes", "tools/localize.py --model=tiny photo.jpg"),
        ("features of regions", 'model.similarity(["a red ball"], features)'),
    ],
)
def test_the_card_of_localization_says_how_it_is_used(takes, used):
    card = cards.render_card("tiny", CARD.strip(), localized(takes))
    assert "| tiny | 25.0 | 50.0 | 75.0 | 87.5 | 12.5 | 8 |" in card
    assert "recall sum of\n150.0" in card and used in card
    assert f"Takes {takes}" in " ".join(card.split())


def test_localization_has_a_table_of_its_own(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "zoo")
    (folder / "finder").mkdir()
    text = json.dumps(localized("photos with boxes"))
    (folder / "finder" / "metrics.json").write_text(text)
    (folder / "finder" / "README.md").write_text(CARD)
    images, _, regions = cards.render_table(folder).partition("\n## Phrases")
    assert "[tiny](tiny/README.md)" in images and "finder" not in images
    assert "[finder](finder/README.md) | 25.0 |" in regions
    rows = [line for line in regions.splitlines() if line.startswith("|")]
    assert len(rows) == 3 and len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    "text",
    ["# a\n\nb\n", "", CARD.replace("# tiny", ""), "# a\n\n## Not for\n"],
)
def test_a_card_without_its_parts_is_refused(tmp_path, text):
    path = tmp_path / "card.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="`card` must be a Markdown file"):
        cards.own_text(path)


def test_places_of_flags_are_no_machines():
    lines = [
        "--data_root=/home/me/data",
        "--run_dir=/home/me/runs/x",
        "--scenes=/tmp/scenes20k",
        "--image_features=/a/b/{split}_ims.npy,features/own",
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]
    assert cards.portable_flags(lines, "tiny")[1:] == [
        "--run_dir=runs/tiny",
        "--scenes=runs/scenes20k",
        "--image_features=data/{split}_ims.npy,features/own",
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]


def test_the_flags_train_the_same(made, run_dir):
    lines = (made[0] / "tiny" / "tiny.flags").read_text().splitlines()
    before = (run_dir / FLAGFILE).read_text().splitlines()
    assert set(before) - set(lines) == {
        line
        for line in before
        if line.startswith(("--run_dir=", "--data_root="))
    }
    assert lines[0].startswith("#")


@pytest.mark.skipif(
    keras.__version__.startswith("2."),
    reason="names of Keras 2 do not tell a layer's variables from another's",
)
def test_a_model_is_exported_again_with_its_weights(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "zoo")
    path = folder / "tiny" / "1"
    before = zoo.open_model(folder / "tiny")
    wanted = before.embed_text(["dog runs", "a"])
    metadata = json.loads((path / saved_files.METADATA_FILE).read_text())
    metadata["tensorflow_version"] = "1.0"  # Of another exporter.
    (path / saved_files.METADATA_FILE).write_text(json.dumps(metadata))
    write_checksums(folder / "tiny")
    ended = anew(f"--zoo={folder}", "--name=tiny", "--again")
    assert ended.returncode == 0, ended.stderr
    assert "answers     differ by 0.0e+00 at most" in ended.stdout
    after = zoo.open_model(folder / "tiny")
    np.testing.assert_array_equal(after.embed_text(["dog runs", "a"]), wanted)
    assert after.metadata["tensorflow_version"] != "1.0"
    assert after.metadata["metadata"] == before.metadata["metadata"]
    metrics = json.loads((folder / "tiny" / "metrics.json").read_text())
    assert metrics == json.loads((made[0] / "tiny/metrics.json").read_text())
    card = (folder / "tiny" / "README.md").read_text()
    assert "Words after the 200th are not read." in " ".join(card.split())


def test_again_needs_a_model_alone(made, run_dir):
    for line in (
        ["--name=", "--table"],
        ["--name=tiny", f"--run_dir={run_dir}"],
    ):
        ended = tool(f"--zoo={made[0]}", "--again", *line)
        assert ended.returncode == 1
        assert "`--again` must come with --name" in ended.stderr


def test_a_card_that_is_no_utf8_is_named(tmp_path):
    path = tmp_path / "card.md"
    path.write_bytes(b"# tiny\n\nTells.\n\xff\n")
    with pytest.raises(ValueError, match="card.md:4: expected UTF-8 text"):
        cards.own_text(path)
