"""Writes the files that the Python blocks of pages read."""

import importlib.util
import pathlib

import numpy as np

import tbnets
from tbnets.data.scenes.dataset import ensure_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import caption_features
from tbnets.serving.checksums import identity_of
from tbnets.tasks import runs
from tbnets.text.vocabulary import count_words
from tbnets.training.checkpoints import save_checkpoint
from tests import photo_files, tiny, tiny_phrases

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCENES = "runs/scenes"
PHOTO = "36979.jpg"
PHOTOS = (
    "photos/one.jpg",
    "photos/two.jpg",
    "one.png",
    "two.jpg",
    "dog.jpg",
    "photo.jpg",
    PHOTO,
)
LINKS = {
    "data": ".",
    "docs/photos": ROOT / "docs" / "photos",
    "flickr8k/images": f"{SCENES}/images",
    "flickr8k/entities": SCENES,
    "flickr8k/dataset_flickr8k.json": f"{SCENES}/dataset.json",
    "folder/of/photos": "photos",
    "runs/quickstart/saved_model": tbnets.zoo.folder() / "flickr8k_photos",
    "runs/own/saved_model": tbnets.zoo.folder() / "flickr8k_photos",
}
SIZE = (100, 60)
BOXES = np.array([[8 * i, 4, 8 * i + 30, 34] for i in range(8)], "float32")


def write_all():
    """Writes the files below the current folder."""
    ensure_scenes(SCENES, SceneSettings(12, 2, 8))
    for place, name in enumerate(PHOTOS):
        path = pathlib.Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(photo_files.encode(size=SIZE, seed=place))
    pathlib.Path("captions.csv").write_text(
        "image,caption\none.jpg,A dog\none.jpg,Two dogs\ntwo.jpg,A child\n"
    )
    flickr30k = pathlib.Path("flickr30k")
    flickr30k.mkdir()
    (flickr30k / "flickr30k.token.txt").write_text(
        "1.jpg#0\tA dog runs .\n1.jpg#1\tA dog .\n2.jpg#0\tA cat .\n"
        "3000000.jpg#0\tA man .\n3000001.jpg#0\tA man .\n"
    )
    (flickr30k / "train.txt").write_text("1\n2\n")
    (flickr30k / "test.txt").write_text("3000000\n3000001\n")
    write_store("proposals/edge_boxes", 0)
    write_store("features/regions", 4)
    for name, target in LINKS.items():
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(pathlib.Path(target).absolute())
    write_vectors("word_vectors/glove_6b_100d.bin")
    write_index("photos.index", "photos")
    write_embeddings("embeddings", "photos")
    if importlib.util.find_spec("sklearn"):
        write_run_of_texts("runs/flickr8k_fisher")
    write_run_of_regions("runs/entities_localization_similarity_best")


def write_embeddings(name, photos):
    """Writes a Parquet file of embeddings, if pyarrow is installed."""
    if not importlib.util.find_spec("pyarrow"):
        return
    from tbnets.data.store.vectors import write_rows

    model = tbnets.zoo.load("flickr8k_photos")
    paths = sorted(pathlib.Path(photos).iterdir())
    rows = [
        {"id": path.name, "embedding": row, "status": "", "sha256": ""}
        for path, row in zip(paths, model.embed_images(paths))
    ]
    pathlib.Path(name).mkdir()
    path, dim = f"{name}/photos.parquet", model.embedding_dim
    write_rows(path, rows, dim, identity_of(model))


def write_store(name, dim):
    """Writes a store of the regions of one photo."""
    writer = FeatureWriter(name, {"made": "up"}, dim, kind="regions")
    count = len(BOXES)
    writer.add(
        [PHOTO],
        np.ones((count, dim)) if dim else None,
        BOXES,
        [count],
        np.arange(count)[::-1],
        sizes=[SIZE],
    )
    writer.finish()


def write_vectors(name):
    """Writes random vectors for all words of the scenes."""
    captions = tbnets.read_captions(f"{SCENES}/dataset.json", "train+test")
    generator = np.random.default_rng(0)
    path = pathlib.Path(name)
    path.parent.mkdir()
    with path.open("w") as file:
        for word in count_words(captions.captions)[0]:
            row = generator.normal(size=6)
            file.write(" ".join([word, *map(str, row)]) + "\n")


def write_index(name, folder):
    """Writes an index of a folder of photos."""
    model = tbnets.zoo.load("flickr8k_photos")
    paths = sorted(map(str, pathlib.Path(folder).iterdir()))
    rows = model.embed_images(paths)
    with tbnets.IndexWriter(name, identity_of(model), rows.shape[1]) as writer:
        writer.put(paths, rows)


def saved(settings):
    """Returns a `Session` whose network was saved without being trained."""
    session, _ = runs.prepare(settings, runs.start(settings, False))
    save_checkpoint(
        session.checkpoint("best"), session.network, None, session.state
    )
    return session


def write_run_of_texts(name):
    """Writes a run on Fisher vectors and exports its model."""
    folder = tiny.write_precomputed(pathlib.Path("tiny"))
    texts = {
        split: (folder / f"{split}_caps.txt").read_text().splitlines()
        for split in tiny.SPLITS
    }
    rows = np.random.default_rng(0).normal(size=(len(tiny.WORDS), 5))
    vectors = tbnets.WordVectors(tiny.WORDS, rows.astype("float32"))
    encoder = tbnets.FisherFeatures(2, pca_dim=6).fit(texts["train"], vectors)
    writer = caption_features.open_writer(folder / "fisher", encoder)
    every = [text for some in texts.values() for text in some]
    caption_features.extract_captions(every, encoder, writer)
    writer.finish()
    changes = {"text_encoder": "features", "text_features": "fisher"}
    runs.export(saved(tiny.settings(folder, name, **changes)))


def write_run_of_regions(name):
    """Writes a run of phrase localization."""
    folder = tiny_phrases.write_phrases(pathlib.Path("tiny_phrases"))
    changes = {"model": "similarity", "head_units": "8"}
    saved(tiny_phrases.settings(folder, name, **changes))
