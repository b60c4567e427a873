"""What people mistype and misplace: each ends on one line that says so.

All tools run their misuses in one process: flags are parsed and checked,
nothing is trained. What a misuse must say is written beside it: the flag or
the file, and what to change.
"""

import json
import re
import shutil

import numpy as np
import PIL.Image
import pytest

from tbnets.tasks import runs
from tbnets.training import checkpoints
from tests import fresh, tiny

# Runs (tool, words) one after the other, and tells how each ended.
DRIVER = """
import contextlib
import io
import json
import pathlib
import sys
import traceback

from tbnets import cli, startup

folder, lines = pathlib.Path(sys.argv[1]), sys.argv[2]


def files():
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


ended = []
for name, line in json.loads(lines):
    text, before = io.StringIO(), files()
    with contextlib.redirect_stderr(text):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                startup.run(lambda: cli.call(name, line))
            except SystemExit as error:
                code = error.code or 0
                if isinstance(code, str):
                    text.write(code + "\\n")
                    code = 1
            except BaseException:
                traceback.print_exc(file=text)
                code = -1
    after = files()
    written = [path for path in after if after[path] != before.get(path)]
    ended.append([code, text.getvalue(), written])
print(json.dumps(ended))
"""

# Flags of a training on pixels, on a table of captions, and on scenes.
PIXELS = "-image_features --image_encoder=small --image_size=8 "
SCENES = "-captions -captions_format "
OWN = "-image_features --images={root}/whole "
NAMED = "-image_features --captions_format=table --captions={root}/"
TABLE = "--captions_format=table --captions="
WEIGHTS = " ".join(
    f"--{one}_weight=0"
    for one in (
        "image_to_text",
        "text_to_image",
        "text_to_text",
        "image_to_image",
    )
)

# (flags after those of a good training, what the error must say)
TRAIN = [
    # What is no value of the flag.
    ("--epochs=many", ["--epochs=many", "--help"]),
    ("--epochz=3", ["'epochz'", "Did you mean: epochs"]),
    ("--loss=hinge", ["--loss=hinge", "wang2018"]),
    ("--precision=float8", ["--precision=float8", "mixed_bfloat16"]),
    ("--export=perhaps", ["--export=perhaps", "--help"]),
    ("--flagfile={root}/absent.flags", ["absent.flags", "--help"]),
    ("runs/first", ["Received: runs/first", "Write --flag=value"]),
    ("--task=tusk", ["`--task` must be one of matching"]),
    ("--model=modal", ["`--model` must be one of embedding"]),
    ("--optimizer=sdg", ["`--optimizer` must be one of sgd, adam"]),
    ("--image_units=8,x", ["`--image_units` must be integers"]),
    ("--image_transform=log", ["`--image_transform` must", "='log'"]),
    ("--image_transform=center,l2", ["as the last", "`--image_transform`"]),
    ("--epochs", ["`--epochs` must have a value", "--help"]),
    # What is out of its range.
    ("--images_per_batch=0", ["`--images_per_batch` must be a whole"]),
    ("--images_per_batch=1", ["a whole number from 2", "--images_per_batch=1"]),
    ("--captions_per_image=0", ["`--captions_per_image` must be a whole"]),
    (PIXELS + "--image_size=-3", ["`--image_size` must be a whole"]),
    ("--text_encoder=gru --rnn_units=0", ["`--rnn_units` must be a whole"]),
    ("--optimizer=sgd --momentum=5", ["`--momentum` must lie from 0 to"]),
    ("--seed=-1", ["`--seed` must lie from 0"]),
    ("--epochs=0", ["`--epochs` must be a whole number from 1"]),
    ("--learning_rate=-1", ["`--learning_rate` must be a finite"]),
    ("--learning_rate=nan", ["Received: --learning_rate=nan"]),
    ("--word_dim=0", ["`--word_dim` must be a whole number from 1"]),
    ("--dropout=1.5", ["`--dropout` must lie from 0 to"]),
    ("--clip_norm=-1", ["`--clip_norm` must be a finite number from"]),
    ("--image_to_text_weight=-1", ["`--image_to_text_weight` must be a"]),
    (WEIGHTS, ["`--image_to_text_weight` or another", "Raise one"]),
    ("--patience=-1", ["`--patience` must be a whole number from 0"]),
    ("--min_count=0", ["`--min_count` must be a whole number from 1"]),
    ("--min_count=1000", ["--min_count=1000", "lower `--min_count`"]),
    ("--evaluate_memory=0", ["`--evaluate_memory` must be a whole"]),
    ("--image_units=8,0", ["`--image_units` must be a whole number from 1"]),
    ("--text_units=8,5", ["4", "5", "`--text_units` must"]),
    (
        SCENES + "--scenes={root}/s --num_scenes=4,2",
        ["`--num_scenes` must"],
    ),
    (
        SCENES + "--scenes={root}/s --num_scenes=4,2,-1",
        ["from 0 to 1000000"],
    ),
    # What contradicts.
    ("--momentum=0.5", ["`--momentum`", "read with --optimizer=sgd"]),
    ("--images={root}/photos", ["`--images`", "without --image_features"]),
    ("--text_features=t.npy", ["`--text_features`", "--text_encoder=features"]),
    (
        "--noexport --example_query=a",
        ["must come with --export", "Leave it out"],
    ),
    (
        "-word_dim --text_encoder=features --text_features={{split}}_texts.npy "
        "--export --example_query=a",
        ["`--example_query` must come with a model that takes captions"],
    ),
    ("--export --cnn_weights=w.h5", ["`--cnn_weights`", "leave --cnn_weights"]),
    # Folders of runs.
    ("--run_dir=", ["`--run_dir` must name a folder", "Set for example"]),
    ("--run_dir={root}/photos", ["`--run_dir`", "holds a.png", "Name another"]),
    ("--run_dir={root}/own.csv", ["`--run_dir`", "is a file. Name another"]),
    ("--run_dir={root}/run", ["which holds a run. Add --resume"]),
    ("--resume", ["`--resume` must come with", "leave --resume out"]),
    ("--resume --run_dir={root}/photos", ["`--resume` must come with"]),
    ("--resume --run_dir={root}/run --margin=1", ["--margin=0.05 (now 1.0)"]),
    ("--resume --run_dir={root}/broken", ["last.npz must be a whole tbnets"]),
    # Captions.
    ("--captions=", ["`--captions` must name the captions"]),
    (
        "--captions=absent",
        ["`--captions` must name", "--data_root", "TBNETS_DA"],
    ),
    (
        "--data_root={root}/absent",
        ["`--captions` must", "docs/data_formats.md"],
    ),
    ("--captions_format=karpathy", ["Set `--captions_format` to precomputed"]),
    (
        "--captions_format=karpathy --captions={root}/own.csv",
        ["own.csv", "Set `--captions_format` to table"],
    ),
    (
        TABLE + "{root}/own.json",
        ["own.json", "`--captions_format` to karpathy or coco"],
    ),
    (
        TABLE + "{root}/train.csv",
        ["`--dev_split` must", "Ask for one of these"],
    ),
    (TABLE + "{root}/plain.csv", ["plain.csv", "give its rows a split"]),
    (
        NAMED + "drawn.csv --images={root}/whole --train_split=trian",
        ["`--train_split` must be a split that", "'train', 'dev', 'test'"],
    ),
    (TABLE + "{root}/columns.csv", ["columns.csv:3", "It has 2", "Quote"]),
    ("--train_split=trian", ["`--train_split` must", "'train', 'dev', 'test'"]),
    (
        "--test_split=tset",
        ["`--test_split` must", "Received: --test_split=tset"],
    ),
    # Features and photos.
    ("--image_features=", ["`--image_features` must name"]),
    ("--image_features=absent", ["--image_features=absent", "--data_root"]),
    ("--image_features={{split}}_no.npy", ["_no.npy", "TBNETS_DATA"]),
    ("--image_features={{split}}_two.npy", ["of split test", "Extract them"]),
    ("--image_features={{split}}_wide.npy", ["8 in train", "9 in dev"]),
    ("--image_features={{split}}_cut.npy", ["test_cut.npy", "truncated"]),
    ("--image_features={{split}}_nan.npy", ["test_nan.npy", "finite"]),
    (
        "--image_features={{split}}_other.npy",
        ["test_other.npy", "6 of 6 missing"],
    ),
    (
        "-word_dim --text_encoder=features",
        ["`--text_features` must name", "Set it"],
    ),
    (PIXELS, ["`--images` must name the folder", "Set it"]),
    (PIXELS + "--images=nowhere", ["`--images` must name what", "--data_root"]),
    (PIXELS + "--images={root}/photos", ["12 of 12 are missing", "Complete"]),
    (
        PIXELS + "--image_encoder=VGG61 --fine_tune --images={root}/whole",
        ["VGG61", "Change"],
    ),
    (
        "-image_features --image_encoder=MobileNetV2 --fine_tune "
        "--image_size=8 --images={root}/whole",
        ["`--image_size` must suit MobileNetV2", "Change it"],
    ),
    (
        "-image_features --image_encoder=SqueezeNet --images={root}/whole "
        "--fine_tune --cnn_weights=imagenet",
        ["`--cnn_weights` must be a weights file"],
    ),
    (
        "-image_features --image_encoder=SqueezeNet --images={root}/whole "
        "--fine_tune --cnn_weights=absent.h5",
        ["absent.h5", "--cnn_weights"],
    ),
    # Photos of one's own.
    (OWN + "--image_encoder=VGG61", ["VGG61", "Change `--image_encoder`"]),
    (OWN + "--cnn_weights=absent.h5", ["absent.h5", "--cnn_weights"]),
    (OWN + "--cnn_weights=", ["`--cnn_weights` must name", "to imagenet"]),
    (OWN + "--images=nowhere", ["`--images` must name what", "--data_root"]),
    (OWN + "--image_features=x.npy", ["`--images`", "read with"]),
    ("--cache=features", ["`--cache`", "without --image_features"]),
    (
        NAMED + "plain.csv --images={root}/photos",
        ["1 in", "plain.csv", "give its rows a split"],
    ),
    (
        NAMED + "names.csv --images={root}/photos",
        ["first 'A'", "'a.png' is there: write the names"],
    ),
    (
        NAMED + "train.csv --images={root}/whole",
        ["such as 'dev0.jpg'", "first 'a.png'"],
    ),
    (
        NAMED + "train.csv --images={root}/empty",
        ["holds no files", "Name the folder"],
    ),
    (
        NAMED + "train.csv --images={root}/photos",
        ["`--dev_split` must", "Ask for one of these"],
    ),
    (
        SCENES + "--scenes={root}/photos",
        ["photos", "Name another"],
    ),
]

MATCHES = "--image_embeddings={root}/i.npy --text_embeddings={root}/t.npy "
ARRAYS = MATCHES + "--caption_to_image={root}/rows.npy "
BOTH = (
    "--data_root={root}/data --captions=. --captions_format=precomputed "
    "--image_features={{split}}_ims.npy --text_features={{split}}_texts.npy "
)
EVALUATE = [
    ("", ["--run_dir", "or --image_embeddings, --text", "--help"]),
    ("runs/first", ["Received: runs/first", "Write --flag=value"]),
    ("--run_dir={root}/absent", ["must be the folder of a run", "train.py"]),
    ("--run_dir={root}/photos", ["must be the folder of a run"]),
    ("--run_dir={root}/young", ["must hold a finished epoch", "train longer"]),
    ("--run_dir={root}/broken", ["best.npz must be a whole tbnets"]),
    (
        "--run_dir={root}/run --split=tset",
        ["`--split`", "--split=tset", "'test'", "one of these"],
    ),
    ("--run_dir={root}/run --checkpoint=first", ["--checkpoint=first"]),
    ("--run_dir={root}/run --checkpoint=last --data_root=x", ["TBNETS_DATA"]),
    (
        "--run_dir={root}/run --text_embeddings=t.npy",
        ["read with --image_embeddings, not with --run_dir"],
    ),
    ("--run_dir={root}/run --images=a", ["not with --run_dir", "Leave it"]),
    (
        "--run_dir={root}/run --region_phrase_ranking",
        ["must be a flag that the run is measured by"],
    ),
    (ARRAYS + "--split=dev", ["`--split`", "read with --run_dir"]),
    (ARRAYS + "--json={root}/absent/m.json", ["`--json`", "Make the folder"]),
    ("--run_dir={root}/run --map=out", ["`--map` must be a file that ends"]),
    (ARRAYS + "--memory_limit_mb=0", ["`--memory_limit_mb` must be a finite"]),
    (ARRAYS + "--protocol=best", ["--protocol=best", "--help"]),
    (ARRAYS + "--protocol=coco_5k", ["5000 rows"]),
    (ARRAYS + "--image_embeddings={root}/no.npy", ["no.npy", "existing file"]),
    (ARRAYS + "--image_embeddings={root}/wide.npy", ["(3, 4)"]),
    (ARRAYS + "--text_embeddings={root}/own.csv", ["own.csv"]),
    (
        MATCHES + "--positive_pairs={root}/rows.npy",
        ["`--positive_pairs`", "[n, 2]"],
    ),
    (
        ARRAYS + "--positive_pairs={root}/rows.npy",
        ["`--positive_pairs`", "without --caption_to_image"],
    ),
    (
        MATCHES + "--positive_pairs={root}/rows.npy --protocol=coco_5k",
        ["`--positive_pairs` must come with --protocol=full"],
    ),
    (ARRAYS + "--caption_to_image={root}/far.npy", ["caption_to_image"]),
    ("--image_features=a.npy", ["must come with --text_features"]),
    ("--hub=clip --captions=a.csv", ["`--hub` must come with --images"]),
    ("--hub=clip --images=a --prompt=b", ["`--prompt` must hold {} where"]),
    ("--hub=clip --run_dir={root}/run", ["read with --hub, not with --run"]),
    ("--image_features=a --text_features=b", ["`--captions` must name"]),
    (BOTH + "--split=tset", ["tset", "'test'", "Ask for one of these"]),
    (BOTH + "--text_features=no.npy", ["`--text_features`", "no.npy"]),
    (BOTH + "--text_features={{split}}_ims.npy", ["every caption of split"]),
    (
        BOTH + "--split=dev --image_features={{split}}_wide.npy",
        ["must be in the space of --image_features", "8 numbers", "9 an image"],
    ),
]

EXPORT = [
    (
        "",
        ["`--run_dir` or `--model` must be", "Write --run_dir=VALUE", "--help"],
    ),
    ("--model=scenes_embedding", ["`--output` must be given", "Write --outp"]),
    ("--model=absent --output={root}/x/1", ["must be a name of the zoo"]),
    ("--model=a --output=b --max_pixels=9", ["`--max_pixels` must come with"]),
    ("--run_dir=a --model=b --output=c", ["must be given", "Received: both"]),
    ("--run_dir=a --signatures=b", ["`--signatures` must come with --model"]),
    ("--run_dir={root}/run --output=a!b --serving", ["letters, digits", "a!b"]),
    ("--run_dir={root}/absent", ["must be the folder of a run"]),
    ("--run_dir={root}/young", ["must hold a finished epoch"]),
    ("--run_dir={root}/run --checkpoint=first", ["--checkpoint=first"]),
    ("--run_dir={root}/run --cnn_weights=w.h5", ["leave --cnn_weights out"]),
]

MODEL = "--model={root}/run "
QUERY = [
    ("", ["must be asked by sentences", "Write for example"]),
    (MODEL + "dog", ["a folder of photos before the sentences", "Write for"]),
    (
        "--model={root}/photos {root}/photos dog",
        ["`--model` must be", "saved_model.pb"],
    ),
    ("--model={root}/half {root}/photos dog", ["whole SavedModel", "export"]),
    (MODEL + "{root}/photos dog", ["`--image_features` must be given", "Add"]),
    (MODEL + "--images={root}/photos dog", ["`--image_features` must be"]),
    (MODEL + "--image_features={root}/no.npy dog", ["no.npy"]),
    (MODEL + "--image_features={root}/wide.npy dog", ["(3, 4)", "trained on"]),
    (MODEL + "{root}/photos --top=0 dog", ["`--top` must be a whole number"]),
    (
        MODEL + "--image_features={root}/i.npy --montage=m.png dog",
        ["`--montage` must come", "Add --images"],
    ),
    (
        MODEL + "--image_features={root}/i.npy --html=m.html dog",
        ["`--html` must come", "Add --images"],
    ),
    (
        MODEL + "--images={root}/photos --html={root}/absent/m.html dog",
        ["`--html` must be a file in a folder", "Make the folder"],
    ),
    *(
        (f"--images={{root}}/photos --{name}=out dog", [f"`--{name}` must be"])
        for name in ("montage", "html")
    ),
    ("--model= {root}/photos dog", ["`--model` must be a name", "--model=,"]),
    ("--model=flickr {root}/photos dog", ["a name of the zoo", "flickr"]),
    (MODEL + "--image=a.png", ["must be asked by sentences"]),
    (
        MODEL + "--image=a --captions={root}/no.txt",
        ["`--captions` must be an existing"],
    ),
    (MODEL + "--image=a --captions={root}/i.npy", ["UTF-8", "Convert"]),
]


def write_captions(root):
    """Writes caption files that do not fit what they are read for."""
    (root / "own.csv").write_text("image,caption\na.png,a dog\n")
    (root / "plain.csv").write_text("image,caption\na.png,a dog\n")
    rows = "image,caption,split\na.png,a dog,train\n"
    (root / "train.csv").write_text(rows)
    (root / "names.csv").write_text("image,caption,split\nA,a dog,train\n")
    (root / "columns.csv").write_text(rows + "b.png,a cat\n")
    rows = "".join(f"train{i}.jpg,a dog\n" for i in range(6))
    (root / "drawn.csv").write_text("image,caption\n" + rows)
    (root / "own.json").write_text('{"images": []}')


def write_features(data):
    """Writes features that are not those of all splits."""
    for split in tiny.SPLITS:
        good = np.load(data / f"{split}_ims.npy")
        ids = (data / f"{split}_ids.txt").read_text()
        of_test = split == "test"
        np.save(data / f"{split}_texts.npy", np.repeat(good, 2, axis=0))
        wide = np.ones((len(good), 9), np.float32)
        nan = np.where(np.arange(8) == 3, np.nan, good).astype(np.float32)
        for name, array in (
            ("two", None if of_test else good),
            ("wide", wide if split == "dev" else good),
            ("cut", good),
            ("nan", nan if of_test else good),
            ("other", good),
        ):
            if array is not None:
                np.save(data / f"{split}_{name}.npy", array)
                (data / f"{split}_{name}_ids.txt").write_text(ids)
    content = (data / "test_cut.npy").read_bytes()
    (data / "test_cut.npy").write_bytes(content[:-9])
    (data / "test_other_ids.txt").write_text("\n".join("abcdef") + "\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of data, runs and files to be mistaken for each other."""
    root = tmp_path_factory.mktemp("misuses")
    data = tiny.write_precomputed(root / "data")
    write_captions(root)
    write_features(data)
    (root / "photos").mkdir()
    (root / "whole").mkdir()
    (root / "empty").mkdir()
    picture = PIL.Image.new("RGB", (9, 9), (200, 0, 0))
    picture.save(root / "photos" / "a.png")
    for split, size in tiny.SPLITS.items():
        for i in range(size):
            picture.save(root / "whole" / f"{split}{i}.jpg")
    settings = tiny.settings(data, root / "run")
    session, _ = runs.prepare(settings, runs.start(settings, False))
    runs.export(session)
    shutil.copytree(root / "run", root / "young")
    session.state.epoch = 1
    for name in ("best", "last"):
        checkpoints.save_checkpoint(
            session.checkpoint(name), session.network, None, session.state
        )
    shutil.copytree(root / "run", root / "broken")
    for name in ("best", "last"):
        (root / "broken" / "checkpoints" / f"{name}.npz").write_bytes(b"PK")
    shutil.copytree(root / "run" / "saved_model" / "1", root / "half")
    (root / "half" / "saved_model.pb").write_bytes(b"\x08\x01\x12")
    eye = np.eye(3, dtype=np.float32)
    np.save(root / "i.npy", eye)
    np.save(root / "t.npy", eye)
    np.save(root / "wide.npy", np.eye(3, 4, dtype=np.float32))
    np.save(root / "rows.npy", np.arange(3))
    np.save(root / "far.npy", np.arange(3) + 7)
    return root


def line_of(tool, misuse, root):
    """Returns the words of a misuse; `-name` leaves a good flag out."""
    words = misuse.format(root=root).split()
    if tool != "train":
        return words
    good = tiny.arguments(root / "data", root / "new" / "run")
    if "--resume" in words and len(words) > 1:
        good = {}  # The run's own flags.
    for word in [word for word in words if re.fullmatch(r"-\w+", word)]:
        words.remove(word)
        good.pop(word[1:])
    return [*(f"--{key}={value}" for key, value in good.items()), *words]


TABLES = {
    "train": TRAIN,
    "evaluate": EVALUATE,
    "export": EXPORT,
    "query": QUERY,
}
CASES = [
    (tool, row) for tool, rows in TABLES.items() for row in range(len(rows))
]


@pytest.fixture(scope="module")
def ends(root):
    """Returns (tool, row) -> [exit code, standard error, files written]."""
    lines = [
        (tool, line_of(tool, TABLES[tool][row][0], root)) for tool, row in CASES
    ]
    ended = fresh.run("-c", DRIVER, root, json.dumps(lines), check=True)
    return dict(zip(CASES, json.loads(ended.stdout.splitlines()[-1])))


@pytest.mark.parametrize(
    ("tool", "row"),
    CASES,
    ids=[f"{tool} {TABLES[tool][row][0]}" for tool, row in CASES],
)
def test_a_misuse_ends_on_one_line_that_says_what_to_change(ends, tool, row):
    code, text, written = ends[tool, row]
    assert text.startswith("error: "), text
    assert text.count("\n") == 1, text
    for words in TABLES[tool][row][1]:
        assert words in text
    assert code == 1
    assert written == []
