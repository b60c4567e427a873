r"""Ranks images for sentences, or sentences for an image, by a SavedModel.

A folder of photos, with a network that was trained from pixels:

  python tools/query.py --images=photos "a dog in the snow" "two children"

A file of features, with a network that was trained on such features; the
photos are then only for the picture:

  python tools/query.py --saved_model=runs/flickr8k/saved_model/1 \
      --image_features=test_ims.npy --images=photos --montage=answers.png \
      "a dog in the snow"

The other way round, an image against the lines of a text file (the image is
a photo, or an id of --image_features):

  python tools/query.py --image=photos/dog.jpg --captions=captions.txt

Each answer has its rank, its similarity (the cosine, 1 is identical) and the
id of the image, or the caption. Words the network was never shown are named:
they do not count. A photo that cannot be decoded is named and left out.
"""

import pathlib
import sys
import textwrap

import numpy as np
import tqdm
from absl import flags
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
from PIL import ImageOps

from tbnets import startup

with startup.quiet_tensorflow():
    import tensorflow as tf

from tbnets import images
from tbnets import serving
from tbnets.data import feature_store
from tbnets.text import vocabulary as vocabulary_lib

_SAVED_MODEL = flags.DEFINE_string(
    "saved_model",
    "runs/quickstart/saved_model/1",
    "Folder of the SavedModel, which tools/train.py wrote.",
)
_IMAGES = flags.DEFINE_string(
    "images", None, "Folder of .jpg and .png files, subfolders included."
)
_IMAGE_FEATURES = flags.DEFINE_string(
    "image_features",
    None,
    "Features [n, dim] (.npy) with their ids in X_ids.txt beside X_ims.npy.",
)
_IMAGE = flags.DEFINE_string(
    "image", None, "Photo, or id in --image_features, to find captions for."
)
_CAPTIONS = flags.DEFINE_string(
    "captions", None, "Text file, a caption a line, to rank for --image."
)
_TOP = flags.DEFINE_integer("top", 5, "Answers per query.", lower_bound=1)
_MONTAGE = flags.DEFINE_string(
    "montage", None, "PNG to write: a row per query with its best images."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Images or captions embedded at once.", lower_bound=1
)

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png")
MARGIN, QUERY_WIDTH, PHOTO_SIZE, LABEL_HEIGHT = 16, 230, 190, 46


def embed(embed_batch, rows, what):
    """Embeds rows in batches, with a progress bar where it takes long.

    Args:
        embed_batch: function from some of the rows to `[n, embedding_dim]`.
        rows: list or array, not empty.
        what: unit for the bar, for example "image".

    Returns:
        float32 `[len(rows), embedding_dim]`.

    Raises:
        ValueError: If an embedding is not finite.
    """
    size, parts = _BATCH_SIZE.value, []
    with tqdm.tqdm(
        total=len(rows), unit=what, leave=False, disable=None, delay=1
    ) as bar:
        for start in range(0, len(rows), size):
            parts.append(embed_batch(rows[start : start + size]))
            bar.update(len(rows[start : start + size]))
    embeddings = np.concatenate(parts)
    if not np.isfinite(embeddings).all():
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        raise ValueError(
            f"`{what}` embeddings must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {len(rows)}, first in row {bad[0]}. Check the "
            "features, or use another checkpoint."
        )
    return embeddings


def list_photos(folder):
    """Returns the paths of all photos in a folder, sorted."""
    paths = pathlib.Path(folder).rglob("*")
    found = sorted(p for p in paths if p.suffix.lower() in PHOTO_SUFFIXES)
    if not found:
        raise FileNotFoundError(
            f"`--images` must be a folder of {', '.join(PHOTO_SUFFIXES)} files."
            f" Received: --images={folder}, which has none. Check the path."
        )
    return found


def embed_photos(model, folder):
    """Embeds the photos of a folder, leaving out what does not decode.

    Args:
        model: a `ServedModel` that takes photos.
        folder: folder of photos.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32 `[n,
        embedding_dim]`.
    """
    ids = []

    def embed_some(paths):
        contents = []
        for path in paths:
            try:
                contents.append((path, images.read_image_bytes(path)))
            except (OSError, ValueError) as error:
                tqdm.tqdm.write(f"left out: {error}", file=sys.stderr)
        kept, rows = embed_decodable(model, contents)
        ids.extend(path.relative_to(folder).as_posix() for path in kept)
        return rows

    embeddings = embed(embed_some, list_photos(folder), "image")
    if not ids:
        raise ValueError(
            "`--images` must hold a photo that can be decoded. Received: "
            f"--images={folder}, where none can. See the reasons above."
        )
    return ids, embeddings


def embed_decodable(model, contents):
    """Embeds a batch of `(path, bytes)`; one by one if one of them fails.

    Returns:
        `(paths, embeddings)` of those that decode.
    """
    try:
        rows = model.embed_images([content for _, content in contents])
        return [path for path, _ in contents], rows
    except tf.errors.InvalidArgumentError:
        if len(contents) == 1:
            path = contents[0][0]
            try:
                images.load_image(path, 8)  # Says in words what is wrong.
            except ValueError as error:
                tqdm.tqdm.write(f"left out: {error}", file=sys.stderr)
                return [], model.embed_images([])
            raise
    parts = [embed_decodable(model, [one]) for one in contents]
    paths = [path for found, _ in parts for path in found]
    return paths, np.concatenate([rows for _, rows in parts])


def embed_images(model):
    """Embeds what --image_features or --images name: `(ids, embeddings)`."""
    needed = "--images" if model.takes_image_bytes else "--image_features"
    given = _IMAGES if model.takes_image_bytes else _IMAGE_FEATURES
    if not given.value:
        raise ValueError(
            f"`{needed}` must be given, as this network takes "
            f"{'photos' if model.takes_image_bytes else 'image features'}. "
            f"Received: --images={_IMAGES.value}, --image_features="
            f"{_IMAGE_FEATURES.value}. Add {needed}=..."
        )
    if model.takes_image_bytes:
        return embed_photos(model, pathlib.Path(_IMAGES.value))
    features = feature_store.open_features(_IMAGE_FEATURES.value)
    return features.ids, embed(model.embed_images, features.array, "image")


def embed_query_image(model):
    """Embeds --image, a photo or an id: `[1, embedding_dim]`."""
    if model.takes_image_bytes:
        images.load_image(_IMAGE.value, 8)  # Its errors name the file.
        content = images.read_image_bytes(_IMAGE.value)
        return model.embed_images([content])
    if not _IMAGE_FEATURES.value:
        raise ValueError(
            "`--image_features` must be given, as this network takes image "
            f"features. Received: --image={_IMAGE.value} alone. Add the file "
            "that has this id."
        )
    features = feature_store.open_features(_IMAGE_FEATURES.value)
    rows = features.rows([_IMAGE.value])
    return embed(model.embed_images, features.array[rows], "image")


def read_captions(path):
    """Returns the lines of a text file that are not blank."""
    try:
        lines = pathlib.Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`--captions` must be UTF-8 text. Received: --captions={path}, "
            f"which is not: {error}. Convert the file."
        ) from error
    captions = [line.strip() for line in lines if line.strip()]
    if not captions:
        raise ValueError(
            "`--captions` must hold a caption a line. Received: --captions="
            f"{path} without any. Check the file."
        )
    return captions


def rank(query_embeddings, candidate_embeddings, top):
    """Finds the best candidates of each query.

    Args:
        query_embeddings: float32 `[q, embedding_dim]`.
        candidate_embeddings: float32 `[n, embedding_dim]`.
        top: number of answers, at most `n` of which there are.

    Returns:
        `(order, similarities)`, each `[q, min(top, n)]`, best first; of equal
        candidates the first one comes first.
    """
    similarities = query_embeddings @ candidate_embeddings.T
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(similarities, order, axis=1)


def unknown_words(model, query):
    """Returns the words of a query that the network does not know."""
    if model.vocabulary is None:
        return []
    words = vocabulary_lib.split_words([query]).flat_values.numpy()
    words = [word.decode("utf-8") for word in words]
    return [word for word in words if word not in model.vocabulary.words]


def print_answers(title, similarities, answers):
    """Prints one query's table."""
    print(f"\n{title}\n rank  similarity  answer")
    for position, (similarity, answer) in enumerate(zip(similarities, answers)):
        print(f"{position + 1:5d}  {similarity:10.3f}  {answer}")


def find_photo(folder, image_id):
    """Returns the path of an image's photo inside a folder, or None."""
    root = pathlib.Path(folder).resolve()
    for suffix in ("", *PHOTO_SUFFIXES):
        path = (root / f"{image_id}{suffix}").resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


def draw_photo(folder, image_id):
    """Draws one photo into a square; a grey square if there is none."""
    square = Image.new("RGB", (PHOTO_SIZE, PHOTO_SIZE), "#eeeeee")
    path = find_photo(folder, image_id)
    if path is None:
        return square
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as photo:
            size = (PHOTO_SIZE, PHOTO_SIZE)
            return ImageOps.pad(photo.convert("RGB"), size, color="#eeeeee")
    except (OSError, SyntaxError, Image.DecompressionBombError):
        return square


def draw_montage(queries, ids, order, similarities, folder):
    """Draws one row per query: the words, then the best images.

    Args:
        queries: list of q strings.
        ids: image ids.
        order: int `[q, k]`, rows of the best images.
        similarities: float `[q, k]`.
        folder: folder of the photos.

    Returns:
        A `PIL.Image.Image`.
    """
    row_height = PHOTO_SIZE + LABEL_HEIGHT + MARGIN
    column = PHOTO_SIZE + MARGIN
    size = (
        2 * MARGIN + QUERY_WIDTH + column * order.shape[1],
        MARGIN + row_height * len(queries),
    )
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(20), ImageFont.load_default(13)
    for row, query in enumerate(queries):
        top = MARGIN + row * row_height
        text = textwrap.fill(query, 20, max_lines=8, placeholder=" ...")
        draw.text((MARGIN, top), text, "black", large, spacing=6)
        for place, index in enumerate(order[row]):
            left = 2 * MARGIN + QUERY_WIDTH + place * column
            sheet.paste(draw_photo(folder, ids[index]), (left, top))
            label = f"{place + 1}    {similarities[row, place]:.3f}"
            below = top + PHOTO_SIZE + 4
            draw.text((left, below), label, "black", ImageFont.load_default(16))
            name = textwrap.shorten(ids[index][-28:], 28)
            draw.text((left, below + 22), name, "#777777", small)
    return sheet


def answer_image(model):
    """Ranks the captions of --captions for --image."""
    captions = read_captions(_CAPTIONS.value)
    query = embed_query_image(model)
    embeddings = embed(model.embed_text, captions, "caption")
    order, similarities = rank(query, embeddings, _TOP.value)
    title = f"{_IMAGE.value} among {len(captions)} captions"
    print_answers(title, similarities[0], [captions[i] for i in order[0]])


def answer_texts(model, queries):
    """Ranks the images for each query, and draws the montage."""
    texts = embed(model.embed_text, queries, "query")
    ids, embeddings = embed_images(model)
    order, similarities = rank(texts, embeddings, _TOP.value)
    for query, rows, values in zip(queries, order, similarities):
        unknown = ", ".join(unknown_words(model, query))
        note = f" (unknown words: {unknown})" if unknown else ""
        title = f'"{query}"{note} among {len(ids)} images'
        print_answers(title, values, [ids[row] for row in rows])
    if _MONTAGE.value:
        sheet = draw_montage(queries, ids, order, similarities, _IMAGES.value)
        sheet.save(_MONTAGE.value, "PNG")
        print(f"\nThe best images side by side: {_MONTAGE.value}")


def check_flags(queries):
    """Refuses flags that make no question."""
    by_image = bool(_IMAGE.value)
    if by_image == bool(queries) or by_image != bool(_CAPTIONS.value):
        raise ValueError(
            "`query.py` must be asked by sentences, or by --image and "
            f"--captions. Received: {len(queries)} sentences, --image="
            f"{_IMAGE.value}, --captions={_CAPTIONS.value}. Write for example "
            'query.py --images=FOLDER "a dog in the snow".'
        )
    if _MONTAGE.value and (by_image or not _IMAGES.value):
        raise ValueError(
            "`--montage` must come with sentences and with --images, the "
            f"folder of the photos. Received: --images={_IMAGES.value}, "
            f"{len(queries)} sentences. Add --images=FOLDER."
        )


def main(argv):
    """Answers the queries."""
    check_flags(argv[1:])
    model = serving.load_saved_model(_SAVED_MODEL.value)
    if not model.takes_captions:
        raise ValueError(
            "`--saved_model` must take captions. Received: --saved_model="
            f"{_SAVED_MODEL.value}, which takes text features. Use a network "
            "that was trained on captions."
        )
    if _IMAGE.value:
        answer_image(model)
    else:
        answer_texts(model, argv[1:])


if __name__ == "__main__":
    startup.run_tool(main)
