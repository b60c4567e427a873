"""A folder of data, runs and files, which test_misuses.py mistakes."""

import shutil

import numpy as np
import PIL.Image

from tbnets.tasks import runs
from tbnets.training import checkpoints
from tests import tiny

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


def write(root):
    """Writes data, runs and files to be mistaken for each other."""
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
