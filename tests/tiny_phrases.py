"""Phrases, proposals and region features so small that a run takes seconds."""

import json

import numpy as np
import PIL.Image

from tbnets.data.batches import PhotoRegions
from tbnets.data.captions import read_captions
from tbnets.data.phrase_examples import PhraseExamples
from tbnets.data.phrases import read_phrases
from tbnets.data.store.reader import open_store
from tbnets.evaluation import boxes
from tbnets.text.vocabulary import PaddedRows
from tests import tiny, tiny_scenes

SPLITS = {"train": 10, "dev": 4, "test": 4}
NOUNS = ("dog", "cat", "ball", "tree", "car")
WORDS = (*NOUNS, "old")
PER_THING = 3
NUM_OTHERS = 6
SIDE = 100.0


def write_phrases(folder, seed=0):
    """Writes captions, phrases, a store of regions, photos and word counts.

    A photo has 3 objects, with two phrases each (`a dog`, `the old dog`). An
    object has three proposals, which overlap its box by more than 0.7; six
    more proposals cover almost the whole photo. The features of a region are
    its overlaps with the objects.
    """
    generator = np.random.default_rng(seed)
    images, rows, stored = [], [], {}
    for split, count in SPLITS.items():
        for i in range(count):
            name = f"{split}{i}.jpg"
            kinds = generator.choice(len(NOUNS), 3, replace=False)
            things = _boxes(generator, 3)
            for chain, (kind, box) in enumerate(zip(kinds, things)):
                noun = NOUNS[kind]
                for phrase in (f"a {noun}", f"the old {noun}"):
                    rows.append(_row(name, phrase, box, chain, kind))
            said = [{"raw": row["phrase"]} for row in rows[-6:]]
            images.append({"filename": name, "split": split, "sentences": said})
            stored[name] = _regions(generator, kinds, things)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images").mkdir()
    for name in stored:
        photo = PIL.Image.new("RGB", (int(SIDE), int(SIDE)), "gray")
        photo.save(folder / "images" / name)
    (folder / "captions.json").write_text(json.dumps({"images": images}))
    for split in SPLITS:
        said = [row["phrase"] for row in rows if row["image"].startswith(split)]
        counts = [[text.split().count(word) for word in WORDS] for text in said]
        np.save(folder / f"{split}_txt.npy", np.array(counts, "float32"))
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "phrases.jsonl").write_text("".join(lines))
    # In another order than the captions have.
    names = sorted(stored, reverse=True)
    features, proposals = zip(*(stored[name] for name in names))
    path = folder / "regions"
    tiny_scenes.write_regions(path, names, features, proposals, SIDE)
    return folder


def _row(name, phrase, box, chain, kind):
    return {
        "image": name,
        "phrase": phrase,
        "box": box.tolist(),
        "chain": chain,
        "type": ["animals", "other"][int(kind > 1)],
        "caption": phrase,
    }


def _boxes(generator, count):
    """Returns boxes that do not overlap."""
    low = generator.uniform(0, 8, (count, 2)) + [
        [33 * i, 0] for i in range(count)
    ]
    sides = generator.uniform([20, 30], [24, 80], (count, 2))
    return np.concatenate([low, low + sides], axis=1)


def _regions(generator, kinds, things):
    """Returns features and boxes of the proposals of a photo."""
    near = np.repeat(things, PER_THING, axis=0)
    near = np.clip(near + generator.uniform(-1, 1, near.shape), 0, SIDE)
    others = generator.uniform(0, 10, (NUM_OTHERS, 4)) + [0, 0, 85, 85]
    proposals = np.concatenate([near, others])
    proposals = proposals[generator.permutation(len(proposals))]
    features = np.zeros((len(proposals), len(NOUNS) + 4))
    features[:, kinds] = boxes.iou(proposals, things)
    features[:, -4:] = proposals / SIDE
    return features, proposals


def examples(folder, count=None):
    """Returns the `PhraseExamples` of the training split's first photos."""
    images = read_captions(folder / "captions.json", "train")
    images = images.subset(range(images.num_images)[:count])
    store = open_store(folder / "regions")
    rows = store.rows(images.image_ids)
    phrases = read_phrases(folder / "phrases.jsonl", images)
    phrases = phrases.in_photos(store.sizes[rows])
    count = phrases.num_phrases
    texts = PaddedRows(phrases.phrase_to_text + 1, np.ones(count))
    return PhraseExamples(phrases, texts, PhotoRegions(store, rows))


def arguments(folder, run_dir, **changes):
    """Returns the flags of a run on `write_phrases`' folder."""
    values = {
        "task": "localization",
        "data_root": folder,
        "captions": "captions.json",
        "phrases": "phrases.jsonl",
        "regions": "regions",
        "run_dir": run_dir,
        "text_encoder": "mean",
        "word_dim": 6,
        "image_units": "16,8",
        "text_units": "16,8",
        "batch_normalization": "none",
        "pairs_per_batch": 12,
        "epochs": 4,
        "learning_rate": 0.01,
        "export": False,
        **changes,
    }
    return {name: str(value) for name, value in values.items()}


def settings(folder, run_dir, **changes):
    """Returns the `Settings` of the flags of `arguments`."""
    return tiny.parsed(arguments(folder, run_dir, **changes))
