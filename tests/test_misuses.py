"""What people mistype and misplace: each error names what to change.

Flags are parsed and checked, nothing is trained or written. Beside each
misuse stands the argument that its error names, or words of its message.
"""

import re
import shutil

import numpy as np
import PIL.Image
import pytest

from tbnets import cli
from tbnets.errors import UserError
from tbnets.tasks import runs
from tbnets.training import checkpoints, loop
from tests import saved_models, tiny
from tests.refusals import assert_about

# Flags of a training on pixels, on a table of captions, and on scenes.
PIXELS = "-image_features --image_encoder=small --image_size=8 "
SCENES = "-captions -captions_format --scenes={root}/"
OWN = "-image_features --images={root}/whole "
CNN = OWN + "--image_encoder=SqueezeNet --fine_tune --cnn_weights="
NAMED = "-image_features --captions_format=table --captions={root}/"
TABLE = "--captions_format=table --captions={root}/"
TEXTS = "-word_dim --text_encoder=features --text_features="
WEIGHTS = (
    "--image_to_text_weight=0 --text_to_image_weight=0 "
    "--text_to_text_weight=0 --image_to_image_weight=0"
)

TRAIN = [
    # Values that a flag does not have.
    ("--epochz=3", "Did you mean: epochs"),
    ("--loss=hinge", "wang2018"),
    ("--flagfile={root}/absent.flags", "absent.flags"),
    ("runs/first", "Received: runs/first"),
    ("--task=tusk", "--task"),
    ("--optimizer=sdg", "--optimizer"),
    ("--image_units=8,x", "--image_units"),
    ("--image_transform=log", "--image_transform"),
    ("--image_transform=center,l2", "--image_transform"),
    ("--epochs", "`--epochs` must have a value"),
    # What is out of its range.
    ("--images_per_batch=1", "--images_per_batch"),
    ("--captions_per_image=0", "--captions_per_image"),
    (PIXELS + "--image_size=-3", "--image_size"),
    ("--seed=-1", "--seed"),
    ("--epochs=0", "--epochs"),
    ("--learning_rate=-1", "--learning_rate"),
    ("--dropout=1.5", "--dropout"),
    ("--gradient_clip_norm=-1", "--gradient_clip_norm"),
    ("--image_to_text_weight=-1", "--image_to_text_weight"),
    (WEIGHTS, "--image_to_text_weight"),
    ("--patience=-1", "--patience"),
    ("--min_count=0", "--min_count"),
    ("--min_count=1000", "captions"),
    ("--image_units=8,0", "--image_units"),
    ("--text_units=8,5", "--text_units"),
    (SCENES + "s --num_scenes=4,2", "--num_scenes"),
    (SCENES + "s --num_scenes=4,2,-1", "--num_scenes"),
    # What contradicts.
    ("--decay_epochs=5", "--decay_epochs"),
    ("--images={root}/photos", "--images"),
    ("--text_features=t.npy", "--text_features"),
    ("--noexport --example_query=a", "--example_query"),
    (
        TEXTS + "{{split}}_texts.npy --export --example_query=a",
        "--example_query",
    ),
    ("--export --cnn_weights=w.h5", "--cnn_weights"),
    # Folders of runs.
    ("--run_dir=", "--run_dir"),
    ("--run_dir={root}/photos", "--run_dir"),
    ("--run_dir={root}/own.csv", "--run_dir"),
    ("--run_dir={root}/run", "--run_dir"),
    ("--resume", "--resume"),
    ("--resume --run_dir={root}/photos", "--resume"),
    ("--resume --run_dir={root}/run --margin=1", "--resume"),
    ("--resume --run_dir={root}/broken", "last.npz must be a complete tbnets"),
    # Captions.
    ("--captions=", "--captions"),
    ("--captions=absent", "`--captions` must name"),
    ("--data_root={root}/absent", "`--captions` must"),
    ("--captions_format=karpathy", "Set `format` to precomputed"),
    ("--captions_format=karpathy --captions={root}/own.csv", "own.csv"),
    (TABLE + "own.json", "own.json"),
    (TABLE + "train.csv", "`--dev_split` must"),
    (TABLE + "plain.csv", "--captions"),
    (NAMED + "drawn.csv --images={root}/whole --train_split=trian", "trian"),
    (TABLE + "columns.csv", "columns.csv:3"),
    ("--train_split=trian", "`--train_split` must"),
    ("--test_split=tset", "`--test_split` must"),
    # Features and photos.
    ("--image_features=", "--image_features"),
    ("--image_features=absent", "--image_features=absent"),
    ("--image_features={{split}}_no.npy", "_no.npy"),
    ("--image_features={{split}}_two.npy", "--image_features"),
    ("--image_features={{split}}_wide.npy", "--image_features"),
    ("--image_features={{split}}_other.npy", "image_ids"),
    (TEXTS, "--text_features"),
    (PIXELS, "--images"),
    (PIXELS + "--images=nowhere", "`--images` must name an"),
    (PIXELS + "--images={root}/photos", "12 of 12 are missing"),
    (OWN + "--image_encoder=VGG61 --fine_tune", "--image_encoder"),
    (
        OWN + "--image_encoder=MobileNetV2 --fine_tune --image_size=8",
        "--image_size",
    ),
    (CNN + "imagenet", "--cnn_weights"),
    (CNN + "absent.h5", "--cnn_weights"),
    # Photos of one's own.
    (OWN + "--image_encoder=VGG61", "--image_encoder"),
    (OWN + "--cnn_weights=absent.h5", "--cnn_weights"),
    (OWN + "--cnn_weights=", "--cnn_weights"),
    (NAMED + "plain.csv --images={root}/photos", "--captions"),
    (NAMED + "names.csv --images={root}/photos", "first 'A'"),
    (NAMED + "train.csv --images={root}/whole", "first 'a.png'"),
    (NAMED + "train.csv --images={root}/empty", "holds no files"),
    (NAMED + "train.csv --images={root}/photos", "`--dev_split` must"),
    (SCENES + "photos", "--scenes"),
]

MATCHES = "--image_embeddings={root}/i.npy --text_embeddings={root}/t.npy "
ARRAYS = MATCHES + "--caption_to_image={root}/rows.npy "
PAIRS = MATCHES + "--positives={root}/rows.npy "
RUN = "--run_dir={root}/run "
BOTH = (
    "--data_root={root}/data --captions=. --captions_format=precomputed "
    "--image_features={{split}}_ims.npy --text_features={{split}}_texts.npy "
)
EVALUATE = [
    ("", "--run_dir"),
    ("--run_dir={root}/photos", "--run_dir"),
    ("--run_dir={root}/young", "--run_dir"),
    ("--run_dir={root}/broken", "best.npz must be a complete tbnets"),
    (RUN + "--split=tset", "`split` must"),
    (RUN + "--checkpoint=first", "--checkpoint=first"),
    (RUN + "--data_root=x", "`--captions` must"),
    (RUN + "--text_embeddings=t.npy", "--text_embeddings"),
    (RUN + "--region_phrase_ranking", "--region_phrase_ranking"),
    (RUN + "--map=out", "--map"),
    ("--run_dir=absent --map=absent/map.png", "--map"),
    ("--map_images=9", "--map_images"),
    ("--image_embeddings=a.npy", "--text_embeddings, --caption_to_image"),
    (ARRAYS + "--split=dev", "--split"),
    (ARRAYS + "--json={root}/absent/m.json", "--json"),
    (ARRAYS + "--memory_limit_mb=0", "--memory_limit_mb"),
    (ARRAYS + "--protocol=coco_5k", "image_embeddings"),
    (ARRAYS + "--image_embeddings={root}/no.npy", "path"),
    (ARRAYS + "--image_embeddings={root}/wide.npy", "text_embeddings"),
    (ARRAYS + "--text_embeddings={root}/own.csv", "own.csv"),
    (PAIRS, "--positives"),
    (ARRAYS + "--positives={root}/rows.npy", "--positives"),
    (PAIRS + "--protocol=coco_5k", "--positives"),
    ("--image_features=a.npy", "--image_features"),
    ("--hub=clip --captions=a.csv", "--hub"),
    ("--hub=clip --images=a --prompt=b", "--prompt"),
    ("--hub=clip --run_dir={root}/run", "--hub"),
    ("--image_features=a --text_features=b", "--captions"),
    (BOTH + "--text_features=no.npy", "`--text_features` must"),
    (BOTH + "--text_features={{split}}_ims.npy", "--text_features"),
    (
        BOTH + "--split=dev --image_features={{split}}_wide.npy",
        "--text_features",
    ),
]

EXPORT = [
    ("", "`--run_dir` or `--model` must"),
    ("--model=scenes_embedding", "--output"),
    ("--model=absent --output={root}/x/1", "--model"),
    ("--model=a --output=b --max_pixels=9", "--max_pixels"),
    ("--run_dir=a --model=b --output=c", "`--run_dir` or `--model` must"),
    ("--run_dir=a --signatures=b", "--signatures"),
    (RUN + "--output=a!b --serving", "--output"),
    ("--run_dir={root}/young", "--run_dir"),
    (RUN + "--cnn_weights=w.h5", "--cnn_weights"),
]

MODEL = "--model={root}/run "
FEATURES = MODEL + "--image_features={root}/"
QUERY = [
    ("", "tbnets query"),
    (MODEL + "dog", "tbnets query"),
    ("--model={root}/photos {root}/photos dog", "`path` must"),
    ("--model={root}/half {root}/photos dog", "path"),
    ("--model=flickr {root}/photos dog", "--model"),
    (MODEL + "{root}/photos dog", "--image_features"),
    (MODEL + "--images={root}/photos dog", "--image_features"),
    (MODEL + "{root}/photos --top=0 dog", "--top"),
    (FEATURES + "no.npy dog", "path"),
    (FEATURES + "wide.npy dog", "images"),
    (FEATURES + "i.npy --montage=m.png dog", "--montage"),
    (FEATURES + "i.npy --html=m.html dog", "--html"),
    ("--images={root}/photos --html={root}/absent/m.html dog", "--html"),
    ("--images={root}/photos --montage=out dog", "--montage"),
    ("--images={root}/photos --html=out dog", "--html"),
    (MODEL + "--image=a.png", "tbnets query"),
    (MODEL + "--image=a --captions={root}/no.txt", "path"),
    (MODEL + "--image=a --captions={root}/i.npy", "i.npy:1"),
]

MISUSES = [
    (tool, *row)
    for tool, rows in (
        ("train", TRAIN),
        ("evaluate", EVALUATE),
        ("export", EXPORT),
        ("query", QUERY),
    )
    for row in rows
]

HEADER = "image,caption,split\n"
FILES = {
    "own.csv": "image,caption\na.png,a dog\n",
    "plain.csv": "image,caption\na.png,a dog\n",
    "train.csv": HEADER + "a.png,a dog,train\n",
    "names.csv": HEADER + "A,a dog,train\n",
    "columns.csv": HEADER + "a.png,a dog,train\nb.png,a cat\n",
    "drawn.csv": "image,caption\n"
    + "".join(f"train{i}.jpg,a dog\n" for i in range(6)),
    "own.json": '{"images": []}',
}
ARRAY_FILES = {
    "i": np.eye(3),
    "t": np.eye(3),
    "wide": np.eye(3, 4),
    "rows": np.arange(3),
}


def write_features(data):
    """Writes features that are not those of all splits."""
    for split in tiny.SPLITS:
        good = np.load(data / f"{split}_ims.npy")
        ids = (data / f"{split}_ids.txt").read_text()
        np.save(data / f"{split}_texts.npy", np.repeat(good, 2, axis=0))
        wide = np.ones((len(good), 9), np.float32)
        arrays = {
            "two": good,
            "wide": wide if split == "dev" else good,
            "other": good,
        }
        for name, array in arrays.items():
            np.save(data / f"{split}_{name}.npy", array)
            (data / f"{split}_{name}_ids.txt").write_text(ids)
    (data / "test_two.npy").unlink()
    (data / "test_other_ids.txt").write_text("\n".join("abcdef") + "\n")


def write_runs(root):
    """Writes a run, one before its first epoch, and a broken one."""
    settings = tiny.settings(root / "data", root / "run")
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


@pytest.fixture(scope="module", autouse=True)
def models_loaded_once():
    """Loads the SavedModel of each folder once for all misuses."""
    with saved_models.loaded_once():
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of data, runs and files to be mistaken for each other."""
    root = tmp_path_factory.mktemp("misuses")
    write_features(tiny.write_precomputed(root / "data"))
    write_runs(root)
    for name, text in FILES.items():
        (root / name).write_text(text)
    for name, array in ARRAY_FILES.items():
        kind = array.dtype if array.dtype.kind == "i" else np.float32
        np.save(root / f"{name}.npy", array.astype(kind))
    for folder in ("photos", "whole", "empty"):
        (root / folder).mkdir()
    picture = PIL.Image.new("RGB", (9, 9), (200, 0, 0))
    picture.save(root / "photos" / "a.png")
    for split, size in tiny.SPLITS.items():
        for i in range(size):
            picture.save(root / "whole" / f"{split}{i}.jpg")
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


def changes(root):
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize(("tool", "misuse", "named"), MISUSES)
def test_a_misuse_is_named_and_writes_nothing(
    root, tool, misuse, named, monkeypatch
):
    monkeypatch.setattr(loop, "make_reproducible", lambda: None)
    before = changes(root)
    with pytest.raises(UserError) as caught:
        cli.call(tool, line_of(tool, misuse, root))
    assert_about(caught.value, named)
    assert "\n" not in str(caught.value)
    assert changes(root) == before
