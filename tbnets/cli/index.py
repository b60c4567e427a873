r"""Make or update a search index of photos or features.

For example, index a folder of photos:

  tbnets index photos --output=photos.index
  tbnets query --index=photos.index "a dog in the snow"

Run the command again after photos have changed: it embeds only new and changed
photos, and removes deleted photos. While it runs, searches use the old index.

Index features, for a network that was trained on them:

  tbnets index --image_features=test_ims.npy --model=runs/flickr8k \
      --output=flickr8k.index

Index the embeddings that tbnets embed computed, for example on a cluster:

  tbnets index --embeddings='embeddings/*.parquet' --output=photos.index

If the index is made with --approximate, tbnets query --approximate finds
nearly all of the best rows in a fraction of the time. This is worthwhile for
100,000 rows or more. With --dtype=float16, the index takes half the disk
space, and similarities have an error of about 0.0001. An index can be
searched only with the network that made it. See docs/search.md.
"""

import dataclasses
import os

from tbnets.cli.model_flags import MODEL, ModelFlags, check_endpoints
from tbnets.data.photos import left_out_lines
from tbnets.data.store.reader import DTYPES, check_same, load_features
from tbnets.data.store.vectors import read_vectors
from tbnets.data.store.writer import CACHE, fault_of_name
from tbnets.errors import InputError
from tbnets.progress import progress_bar, say
from tbnets.serving import embedding_cache, search, zoo
from tbnets.serving.checksums import identity_of
from tbnets.serving.index_writer import IndexWriter
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ModelFlags):
    """Flags for the index folder, the rows to index, and the network."""

    model: str = flag("flickr8k_photos", f"{MODEL}.")
    folder: list[str] = flag(
        [], "Folder of photos, subfolders included.", kind="words"
    )
    image_features: list[str] = flag(
        [],
        "In place of photos: a feature store, or features [n, dim] (.npy) with "
        "their ids in X_ids.txt next to X_ims.npy. Several are concatenated.",
    )
    embeddings: str = flag(
        "",
        "In place of photos: Parquet files of tbnets embed with this --model.",
    )
    output: str = flag(REQUIRED, "Folder of the index.")
    dtype: str | None = flag(
        None,
        "Type of the stored embeddings. Default: the type of the existing "
        "index, or float32 for a new index.",
        choices=list(DTYPES),
    )
    approximate: bool = flag(
        False,
        "Also group the rows into cells, for tbnets query --approximate. "
        'Requires: pip install "tbnets[faiss]".',
    )
    cache: str = flag(
        "",
        "Folder that caches the embeddings of photos, such as FOLDER.tbnets of "
        "tbnets query. Default: the folder cache in --output.",
    )


def index_photos(options, model):
    """Yields (ids, embeddings) of the photos in the folder."""
    [folder] = options.folder
    cache = options.cache or os.path.join(options.output, CACHE)
    yield embedding_cache.embed_folder(model, folder, cache, fault_of_name)


def embed_features(options, model):
    """Yields (ids, embeddings) of the features, in batches."""
    embed = model.embed_features if model.takes_photos else model.embed_images
    features = load_features(*options.image_features)
    ids = list(dict.fromkeys(features.ids))
    with progress_bar(len(ids), "embedding", " rows") as bar:
        for start in range(0, len(ids), search.BATCH_SIZE):
            batch_ids = ids[start : start + search.BATCH_SIZE]
            yield batch_ids, embed(features.take(features.rows(batch_ids)))
            bar.update(len(batch_ids))


def read_embeddings(options, model):
    """Yields (ids, embeddings) of Parquet files, and reports broken photos."""
    broken, count = {}, 0
    for path, made_by, ids, rows, failed in read_vectors(options.embeddings):
        check_same(path, made_by, identity_of(model))
        broken, count = broken | failed, count + len(ids) + len(failed)
        yield ids, rows
    for line in left_out_lines(broken, (), count):
        say(line)


def main(options):
    """Updates the index to contain exactly the given photos or features."""
    others = bool(options.image_features) + bool(options.embeddings)
    if len(options.folder) + others != 1:
        expected = "get one folder of photos, --image_features or --embeddings"
        received = f"{len(options.folder)} folders and {others} of these flags"
        raise InputError("tbnets index", expected, received)
    model = zoo.open_model(options.model, options.trust)
    requirement = "be a network for whole images", "Choose another model."
    check_endpoints(model, options.model, {"embed_image": requirement})
    notes, batches = {"model": options.model}, embed_features(options, model)
    if options.folder:
        notes["photos"] = os.path.relpath(options.folder[0], options.output)
        batches = index_photos(options, model)
    elif options.embeddings:
        batches = read_embeddings(options, model)
    dim, path = model.embedding_dim, options.output
    how = options.dtype, notes, options.approximate
    with IndexWriter(path, identity_of(model), dim, *how) as writer:
        for ids, embeddings in batches:
            writer.put(ids, embeddings)
        writer.remove_others()
    print(
        f"{path}  {writer.size} rows of {dim} {writer.dtype}: {writer.added} "
        f"added, {writer.removed} removed"
    )
