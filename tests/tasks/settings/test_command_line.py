import json
import pathlib
import re

import pytest

from tbnets.cli import run_line
from tbnets.errors import InputError
from tbnets.tasks import registry
from tbnets.tasks.settings import records
from tbnets.tasks.settings.learning_groups import LOSSES
from tbnets.tasks.settings.settings import ALL
from tests.tiny import parse, parsed, typed, unread

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs").glob("*.flags"))
ZOO = sorted((ROOT / "model_zoo").glob("*/*.flags"))


def test_settings_have_only_the_groups_of_task_and_model():
    found = parse("--model=similarity")
    assert found.pairs.head_units == [512, 256] and found.loss is None
    assert found.replace(seed=3).run.seed == 3 and found.run.seed == 0
    solved = parse("--model=cca")
    assert (solved.epochs, solved.patience) == (1, 0)
    assert parse("--task=localization").image_encoder == "features"


def test_each_setting_has_a_source(tmp_path, monkeypatch):
    monkeypatch.setenv("TBNETS_DATA", "/elsewhere")
    path = tmp_path / "own.flags"
    path.write_text("--epochs=3\n--word_dim=4\n--captions=c.csv\n")
    line = typed(f"--flagfile={path}", "--epochs=5", "--loss=kiros2014")
    found = run_line.resolve(line)
    assert found.source("epochs") == "the command line"
    assert found.source("word_dim") == "a flag file"
    assert found.source("data_root") == "default: TBNETS_DATA"
    assert found.source("margin") == "default of --loss=kiros2014"
    assert found.source("dropout") == "default"
    record = {**found.settings.values(), "dropout": 0.25}
    again = run_line.resolve(typed("--epochs=9"), records.completed(record, ""))
    assert again.settings.branches.dropout == 0.25
    assert again.source("dropout") == "the run that is resumed"
    assert again.source("epochs") == "the command line"
    shown = run_line.format_settings(found).splitlines()
    assert shown[0].split() == ["--run_dir=", "default"]


def test_flag_file_of_a_run_restores_its_settings(tmp_path):
    changes = {
        "run_dir": tmp_path / "my run",
        "image_features": "my features/{split}_ims.npy",
        "train_split": "train+restval",
        "image_units": "4",
        "image_transform": "signed_sqrt,l2",
        "learning_rate": 3e-05,
        "export": False,
        "images": "",
        "seed": 7,
    }
    settings = parsed(changes)
    records.write_settings(settings, tmp_path)
    assert parse(f"--flagfile={tmp_path / 'run.flags'}") == settings
    assert registry.settings_of(records.read_record(tmp_path)) == settings


@pytest.mark.parametrize(
    "before, now, changed",
    [
        ("", "--epochs=99 --patience=3 --run_dir=x", []),
        (
            "",
            "--seed=4 --image_units=8,4 --epochs=9",
            ["--image_units", "--seed"],
        ),
        # A constant learning rate does not decay.
        ("--decay_epochs=5", "--decay_epochs=6", []),
        (
            "--schedule=step --decay_epochs=5",
            "--schedule=step --decay_epochs=6",
            ["--decay_epochs"],
        ),
        # The schedule decays until the last epoch, and is named too.
        (
            "--schedule=cosine",
            "--schedule=cosine --epochs=9",
            ["--epochs", "--schedule"],
        ),
    ],
)
def test_resumed_run_cannot_change_flags_that_affect_results(
    before, now, changed
):
    before, now = parse(*before.split()), parse(*now.split())
    if not changed:
        records.check_resumable(before.values(), now, "kept")
        return
    with pytest.raises(InputError) as caught:
        records.check_resumable(before.values(), now, "kept")
    named = re.findall(r"--\w+(?==)", caught.value.fields[2])
    assert sorted(named) == changed


def test_a_record_with_an_unknown_flag_is_refused():
    with pytest.raises(InputError, match="kept.*'unknown'"):
        records.completed({**parse().values(), "unknown": 1}, "kept")


@pytest.mark.parametrize(
    "name, value",
    [
        ("captions", "\ud800"),
        ("seed", "7"),
        ("export", 1),
        ("image_units", ["7"]),
        ("loss", "unknown"),
        ("started_in", {}),
    ],
)
def test_settings_of_wrong_types_are_named(tmp_path, name, value):
    path = tmp_path / records.SETTINGS_FILE
    path.write_text(json.dumps({**parse().values(), name: value}))
    with pytest.raises(InputError, match=f"{path}.*{name}"):
        records.read_record(tmp_path)


def test_flag_file_has_only_used_flags(tmp_path):
    settings = parse("--task=localization", "--model=similarity")
    records.write_settings(settings, tmp_path)
    lines = (tmp_path / "run.flags").read_text()
    assert "--head_units=" in lines and "--regions=" in lines
    assert "--cca_dim=" not in lines and "--image_encoder=" not in lines
    assert unread(f"--flagfile={tmp_path / 'run.flags'}") == ""


def test_default_run_dir_is_named_after_the_photos():
    assert parse("--images=my/photos").run.run_dir == "runs/photos"
    assert parse("--images=my/photos", "--task=localization").run.run_dir == ""


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_has_only_used_flags(path):
    text = path.read_text()
    itself = f"--flagfile=configs/{path.name}"
    named = [line for line in text.splitlines() if itself in line]
    assert all(line.startswith("#") for line in named)
    assert named or "_base" in path.name
    found = parse(f"--flagfile={path}")
    assert ("vilalta" in path.name) == (found.texts.rnn_units == 2048)
    assert unread(f"--flagfile={path}") == ""


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_zoo_flag_files_have_only_used_flags(path):
    assert unread(f"--flagfile={path}") == ""


def test_a_flag_file_may_have_flags_that_the_run_does_not_use(tmp_path):
    path = tmp_path / "base.flags"
    path.write_text("--text_encoder=features\n--epochs=30\n")
    unread_flags = unread(f"--flagfile={path}", "--model=cca")
    assert "--epochs" in unread_flags
    assert "--text_encoder" not in unread_flags


@pytest.mark.parametrize(
    "model, encoder", [("hm_lstm", "h_lstm"), ("cca", "features")]
)
def test_a_model_has_usual_flags(model, encoder):
    resolved = run_line.resolve(typed(f"--model={model}"))
    assert resolved.settings.texts.text_encoder == encoder
    source = f"configs/usual/{model}.flags"
    assert resolved.source("text_encoder") == source
    assert parse(f"--model={model}", "--text_encoder=gru") != resolved.settings


def test_flags_override_the_loss_of_a_paper():
    found = parse("--loss=kiros2014", "--margin=0.3")
    assert (found.loss.negatives, found.loss.reduction) == ("all", "sum")
    assert (found.loss.margin, found.loss.distance) == (0.3, "cosine")
    assert found.loss.text_to_image_weight == 1.0
    assert found.loss.text_to_text_weight == 0.0
    assert parse().loss.text_to_text_weight == 0.05


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_sets_all_flags_that_it_reads(name):
    settings = parse(f"--loss={name}")
    unset = {k for k, value in settings.values().items() if value is None}
    assert unset <= settings.unused().keys()


def test_data_root_is_from_the_command_line_then_environment_then_flag_file(
    monkeypatch, tmp_path
):
    def data_root(*line):
        return parse(*line).captions.data_root

    path = tmp_path / "own.flags"
    path.write_text("--data_root=here\n")
    assert data_root() == "data"
    assert data_root("--data_root=here") == "here"
    assert data_root(f"--flagfile={path}") == "here"
    monkeypatch.setenv("TBNETS_DATA", "/elsewhere")
    assert data_root() == "/elsewhere"
    assert data_root("--data_root=here") == "here"
    assert data_root(f"--flagfile={path}") == "/elsewhere"


def test_exported_settings_have_no_paths():
    line = "--captions=/home/me/c.json", "--run_dir=/home/me/runs"
    found = parse(*line).without_places()
    assert found["margin"] == 0.05
    places = {"captions", "run_dir", "data_root", "images", "started_in"}
    assert not places & set(found)
    assert "/home/me" not in str(found)


def test_every_number_has_a_range():
    for name, flag in ALL.items():
        numeric = flag.type in (int, float, list[int])
        assert numeric == (flag.limits is not None), name


def test_typed_paths_of_a_resumed_run_are_relative_to_the_current_folder(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("kept", "imagenet", "captions.csv", "photos"):
        (tmp_path / name).mkdir()
    given = ["--images=photos", "--captions=captions.csv", "--cache=kept"]
    before = records.completed(parse(*given).values(), "kept")
    before["started_in"] = "/elsewhere"
    line = ("--cache=kept", "--cnn_weights=imagenet", "--run_dir=kept")
    now = run_line.resolve(typed(*line), before).settings
    assert now.images.cache == str(tmp_path / "kept")
    assert (now.features.cnn_weights, now.run.run_dir) == ("imagenet", "kept")
    # What was not named is the run's own, and so is what is not here.
    assert now.captions.captions == "captions.csv"
    gone = run_line.resolve(typed("--cache=gone"), before).settings
    assert gone.images.cache == "gone"
    records.check_resumable(before, now, "kept")
    # What is here is not what the run was started with.
    now = run_line.resolve(typed("--captions=captions.csv"), before).settings
    with pytest.raises(InputError, match="--captions=captions.csv"):
        records.check_resumable(before, now, "kept")
