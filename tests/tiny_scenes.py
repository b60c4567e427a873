"""Scenes with made-up features, so small that a run takes seconds."""

import json

import numpy as np

from tbnets.data.scenes.dataset import ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.store.writer import FeatureWriter
from tbnets.evaluation import boxes
from tests import tiny

SCENES = (16, 6, 6)
NUM_REGIONS = 6
KINDS = ("shape", "colour")


def write_scenes(folder, seed=0):
    """Writes scenes, features of their photos and a store of regions.

    The regions are slightly moved boxes of objects, and random boxes. Features
    measure each shape and colour; a region has one more feature than a photo.
    """
    ensure_scenes(folder / "scenes", SceneSettings(*SCENES))
    lines = (folder / "scenes" / "scenes.jsonl").read_text().splitlines()
    scenes = [json.loads(line) for line in lines]
    names = sorted(
        {
            (kind, one[kind])
            for s in scenes
            for one in s["objects"]
            for kind in KINDS
        }
    )
    generator = np.random.default_rng(seed)
    side = SceneSettings(*SCENES).image_size
    ids, photos, features, proposals = [], [], [], []
    for scene in scenes:
        table = np.array(
            [
                [(kind, one[kind]) == name for name in names for kind in KINDS]
                for one in scene["objects"]
            ],
            float,
        )
        things = np.array([one["box"] for one in scene["objects"]], float)
        near = np.clip(things + generator.uniform(-1, 1, things.shape), 0, side)
        low = generator.uniform(0, side / 2, (NUM_REGIONS - len(near), 2))
        others = np.concatenate([low, low + side / 3], axis=1)
        found = generator.permutation(np.concatenate([near, others]))
        ids.append(f"{scene['id']}.jpg")
        photos.append(table.sum(axis=0))
        seen = boxes.iou(found, things) @ table
        features.append(np.pad(seen, [[0, 0], [0, 1]]))
        proposals.append(found)
    np.save(folder / "ims.npy", np.array(photos, "float32"))
    (folder / "ims_ids.txt").write_text("\n".join(ids) + "\n")
    write_regions(folder / "regions", ids, features, proposals, side)
    return folder


def write_regions(path, ids, features, proposals, side, made_by=None):
    """Writes a store of regions of photos with `side` x `side` pixels."""
    made_by, dim = made_by or {"made": "up"}, features[0].shape[1]
    writer = FeatureWriter(path, made_by, dim, "float16", "regions")
    writer.add(
        ids,
        np.concatenate(features),
        np.concatenate(proposals),
        [len(one) for one in proposals],
        sizes=np.full((len(ids), 2), int(side)),
    )
    writer.finish()


def arguments(folder, run_dir, **changes):
    """Returns the flags of a run of HM-LSTM on `write_scenes`' folder."""
    values = {
        "model": "hm_lstm",
        "data_root": folder,
        "scenes": folder / "scenes",
        "num_scenes": ",".join(map(str, SCENES)),
        "image_features": "ims.npy",
        "regions": "regions",
        "regions_per_image": NUM_REGIONS,
        "run_dir": run_dir,
        "loss": "niu2017",
        "word_dim": 6,
        "rnn_units": 8,
        "image_units": "8",
        "text_units": "8",
        "images_per_batch": 8,
        "captions_per_image": 2,
        "correspondence_epochs": 2,
        "epochs": 4,
        "learning_rate": 0.01,
        "export": False,
        **changes,
    }
    return {name: str(value) for name, value in values.items()}


def settings(folder, run_dir, **changes):
    """Returns the `Settings` of the flags of `arguments`."""
    return tiny.parsed(arguments(folder, run_dir, **changes))
