import pathlib
import types

import pytest
from absl import flags as absl_flags

from tbnets import flags
from tbnets import runs
from tests import tiny

CONFIGS = sorted(pathlib.Path("configs").glob("*.flags"))


def parse(*line):
    """Parses flags as a tool does; those not given have their defaults."""
    if "captions_format" not in flags.FLAGS:
        flags.define_run_flags()
    flags.FLAGS.unparse_flags()
    defaults = [f"--{name}={tiny.default(name)}" for name in flags.run_flags()]
    flags.FLAGS(["test", *defaults, *line])
    return flags.settings()


def test_settings_have_plain_values():
    found = parse("--image_units=7,5", "--margin=0.2", "--noexport")
    assert found.image_units == [7, 5]
    assert found.margin == 0.2
    assert found.export is False
    assert found.num_scenes == [2000, 250, 250]
    assert vars(found).keys() == set(flags.run_flags())


def test_defaults_are_those_of_wang_2018():
    found = parse()
    assert (found.margin, found.num_negatives) == (0.05, 10)
    weights = (
        found.image_to_text_weight,
        found.text_to_image_weight,
        found.text_to_text_weight,
        found.image_to_image_weight,
    )
    assert weights == (1.0, 1.5, 0.05, 0.0)
    assert (found.word_dim, found.rnn_units) == (256, 512)
    assert found.text_units == [1024, 512]


@pytest.mark.parametrize("name", ["image_units", "text_units", "num_scenes"])
def test_a_comment_behind_a_value_is_told(tmp_path, name):
    path = tmp_path / "bad.flags"
    path.write_text(f"# whole line: fine\n--{name}=20,5  # as the paper\n")
    with pytest.raises(ValueError) as caught:
        parse(f"--flagfile={path}")
    assert f"`--{name}` must be integers" in str(caught.value)
    assert "as the paper" in str(caught.value)
    assert "A comment can not follow a value" in str(caught.value)


def test_every_flag_says_what_it_is():
    parse()
    for name in flags.run_flags():
        assert len(flags.FLAGS[name].help) > 8, name
    assert set(flags.run_flags()) >= flags.FREE_ON_RESUME


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "image_features": "my features/{split}_ims.npy",
            "train_split": "train+restval",
            "image_units": "4",
            "image_transform": "signed_sqrt,l2",
            "learning_rate": 3e-05,
            "bidirectional": True,
            "export": False,
            "images": "",
            "seed": -1,
        },
    ],
)
def test_flagfile_of_a_run_gives_its_settings(tmp_path, changes):
    line = {"run_dir": tmp_path / "my run", **changes}
    settings = parse(*[f"--{key}={value}" for key, value in line.items()])
    folder = runs.start(settings, resume=False)
    assert parse(f"--flagfile={folder / 'run.flags'}") == settings
    assert flags.read_settings(folder) == settings


def test_lines_of_a_flagfile():
    assert flags.as_flagfile_line("num_scenes", [7, 5]) == "--num_scenes=7,5\n"
    assert flags.as_flagfile_line("export", False) == "--export=false\n"
    assert flags.as_flagfile_line("images", "") == "--images=\n"
    assert flags.as_flagfile_line("margin", 0.1) == "--margin=0.1\n"


def test_resume_may_change_what_leaves_the_numbers_alone():
    before, now = parse(), parse("--epochs=99", "--patience=3", "--run_dir=x")
    flags.check_resumable(before, now)


def test_resume_lists_every_flag_that_changes_the_numbers():
    before, now = parse(), parse("--seed=4", "--image_units=8,4", "--epochs=9")
    with pytest.raises(ValueError) as caught:
        flags.check_resumable(before, now)
    message = str(caught.value)
    assert "--image_units=[2048, 512] (now [8, 4])" in message
    assert "--seed=0 (now 4)" in message
    assert "epochs" not in message


def test_resume_notices_a_flag_that_is_gone():
    before = types.SimpleNamespace(retired=1)
    with pytest.raises(ValueError, match=r"--retired=1 \(now None\)"):
        flags.check_resumable(before, parse())


@pytest.mark.parametrize("content", [None, "", "{", "[1]", b"\xff"])
def test_settings_that_can_not_be_read_name_the_folder(tmp_path, content):
    if content is not None:
        content = content if isinstance(content, bytes) else content.encode()
        (tmp_path / flags.SETTINGS_FILE).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        flags.read_settings(tmp_path)
    assert "`run_dir` must be the folder of a run" in str(caught.value)
    assert f"run_dir={tmp_path}" in str(caught.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_parses_and_names_its_command(path):
    text = path.read_text()
    assert text.startswith("# ")
    assert f"--flagfile=configs/{path.name}" in text or "_base" in path.name
    if "example_query" not in flags.FLAGS:
        absl_flags.DEFINE_multi_string("example_query", [], "")
    found = parse(f"--flagfile={path}")
    assert found.images_per_batch > 1
    assert ("vilalta" in path.name) == (found.rnn_units == 2048)
