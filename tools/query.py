r"""Searches photos by sentences, or sentences by a photo.

Your photos, with a network that starts at photos:

  python tools/query.py --images=photos "a dog in the snow" "two children"

The first search embeds the folder, with a progress bar. The embeddings are
kept in photos.tbnets beside it, so that the next search embeds only photos
that are new or have changed. There is the picture of the answers too,
photos.tbnets/answers.png. A page that opens in any browser, and another
network, by its name in the model zoo or the folder of a run:

  python tools/query.py --model=runs/own --images=photos \
      --html=answers.html "a dog in the snow"

Where the network was trained on features, a store or file of them is
searched; the photos are then only for the pictures:

  python tools/query.py --model=runs/flickr8k \
      --image_features=test_ims.npy --images=photos "a dog in the snow"

The other way round, an image against the lines of a text file (the image is
a photo, or an id of --image_features):

  python tools/query.py --image=photos/dog.jpg --captions=captions.txt

A network that reads sentences along their syntax (docs/hm_lstm.md) has them
parsed on the way in, which needs an extra: pip install "tbnets[parse]".

Each answer has its rank, its similarity (the cosine, 1 is identical; of a
similarity network the log odds of a match, 0 is even, or where it learned by
--pair_loss=softmax, a number that only compares answers to one question) and
the id of the image, or the caption. Words the network was never shown are
named: they do not count. A file that is no photo is named with the reason, left
out and counted.
"""

import errno
import os
import pathlib
import sys

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import files, images
from tbnets.pictures import montage, page
from tbnets.serving import index, search, zoo
from tbnets.store.opening import open_features

_MODEL = flags.DEFINE_string(
    "model",
    "runs/quickstart",
    "Name of a model of the zoo (model_zoo/README.md); or folder of a run of "
    "tools/train.py, whose newest SavedModel is asked; or of one version, "
    "RUN/saved_model/1.",
)
_IMAGES = flags.DEFINE_string(
    "images", None, "Folder of .jpg and .png files, subfolders included."
)
_TRUST = flags.DEFINE_bool(
    "trust",
    False,
    "Load --model whatever ops its graph has: a SavedModel of others can write "
    "files when it is called.",
)
_TOP = flags.DEFINE_integer("top", 5, "Answers per query.", lower_bound=1)
_MONTAGE = flags.DEFINE_string(
    "montage",
    None,
    "PNG to write: a row per query with its best images. Without it, "
    "answers.png in the folder of --cache; empty for none.",
)
_HTML = flags.DEFINE_string(
    "html",
    None,
    "HTML page to write: the best images of each query, with links to the "
    "files. One file without scripts, which opens without a server.",
)
_CACHE = flags.DEFINE_string(
    "cache",
    None,
    "Folder to keep the embeddings of --images in, one for each folder of "
    "photos. Without it, FOLDER.tbnets beside --images=FOLDER; it may be "
    "deleted at any time.",
)
_IMAGE_FEATURES = flags.DEFINE_list(
    "image_features",
    None,
    "Feature store, or features [n, dim] (.npy) with their ids in X_ids.txt "
    "beside X_ims.npy; or several, as in training.",
)
_IMAGE = flags.DEFINE_string(
    "image", None, "Photo, or id in --image_features, to find captions for."
)
_CAPTIONS = flags.DEFINE_string(
    "captions", None, "Text file, a caption a line, to rank for --image."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    search.PHOTO_BATCH_SIZE,
    "Images or captions embedded at once.",
    lower_bound=1,
)


def embed_images(model):
    """Embeds what --image_features or --images name: `(ids, embeddings)`."""
    needed = "--images" if model.takes_photos else "--image_features"
    given = _IMAGES if model.takes_photos else _IMAGE_FEATURES
    if not given.value:
        raise InputError(
            f"`{needed}` must be given, as this network takes "
            f"{'photos' if model.takes_photos else 'image features'}. "
            f"Received: --images={_IMAGES.value}, --image_features="
            f"{_IMAGE_FEATURES.value}. Add {needed}=..."
        )
    if model.takes_photos:
        return index.embed_folder(
            model, _IMAGES.value, _CACHE.value, _BATCH_SIZE.value
        )
    features = open_features(*_IMAGE_FEATURES.value)
    return features.ids, search.embed(
        lambda rows: model.embed_images(features.take(rows)),
        range(len(features)),
        "image",
        _BATCH_SIZE.value,
    )


def embed_query_image(model):
    """Embeds --image, a photo or an id: `[1, embedding_dim]`."""
    if model.takes_photos:
        batch = next(search.embed_files(model, [_IMAGE.value]))
        for path, reason in {**batch.refused, **batch.unread}.items():
            raise images.BrokenImageError(path, reason)
        return batch.embeddings
    if not _IMAGE_FEATURES.value:
        raise InputError(
            "`--image_features` must be given, as this network takes image "
            f"features. Received: --image={_IMAGE.value} alone. Add the file "
            "that has this id."
        )
    features = open_features(*_IMAGE_FEATURES.value)
    rows = features.rows([_IMAGE.value])
    return search.embed(model.embed_images, features.take(rows), "image")


def read_captions(path):
    """Returns the lines of a text file that are not blank."""
    try:
        lines = pathlib.Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"`--captions` must be UTF-8 text. Received: --captions={path}, "
            f"which is not: {error}. Convert the file."
        ) from error
    captions = [line.strip() for line in lines if line.strip()]
    if not captions:
        raise InputError(
            "`--captions` must hold a caption a line. Received: --captions="
            f"{path} without any. Check the file."
        )
    return captions


def answer_image(model):
    """Ranks the captions of --captions for --image."""
    captions = read_captions(_CAPTIONS.value)
    query = embed_query_image(model)
    embeddings = search.embed(
        model.embed_text, captions, "caption", _BATCH_SIZE.value
    )
    order, similarities = search.best(
        model.compare(query, embeddings), _TOP.value
    )
    title = f"{_IMAGE.value} among {len(captions)} captions"
    answers = [captions[i] for i in order[0]]
    print(search.format_answers(title, similarities[0], answers))


def answer_texts(model, queries):
    """Ranks the images for each query, and draws the answers."""
    ids, embeddings = embed_images(model)
    text, order, similarities = search.answer_queries(
        model, queries, ids, embeddings, _TOP.value
    )
    print(text)
    if _IMAGES.value and _MONTAGE.value != "":
        write_montage(queries, ids, order, similarities)
    if _HTML.value:
        write_page(model, queries, ids, order, similarities)


def write_montage(queries, ids, order, similarities):
    """Writes the contact sheet to --montage, or beside the embeddings."""
    folder = files.folder_beside(_IMAGES.value, _CACHE.value)
    path = pathlib.Path(_MONTAGE.value or folder / "answers.png")
    sheet = montage.draw_montage(
        queries, ids, order, similarities, _IMAGES.value
    )
    try:
        if not _MONTAGE.value:
            files.make_folder_of(_IMAGES.value, folder)
        files.write_atomically(path, lambda file: sheet.save(file, "PNG"))
    except OSError as error:
        if _MONTAGE.value:
            raise
        print(
            f"note: the answers are not drawn: {path}: "
            f"{os.strerror(error.errno or errno.EIO)}. Name another place by "
            "--montage.",
            file=sys.stderr,
        )
    else:
        print(f"\nThe best images side by side: {path}")


def write_page(model, queries, ids, order, similarities):
    """Writes the page to --html."""
    sections = []
    for query, rows, values in zip(queries, order, similarities):
        note = search.unknown_note(model, query)
        names = [ids[row] for row in rows]
        sections.append(page.Section(query, note, names, values))
    about = f"The best of {len(ids):,} photos in {_IMAGES.value}, found by "
    page.write_page(_HTML.value, sections, _IMAGES.value, about + _MODEL.value)
    print(f"\nThe answers as a page: {_HTML.value}")


def check_text(queries):
    """Refuses sentences with bytes that are no text."""
    for query in queries:
        try:
            query.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"`query.py` must be asked in UTF-8. Received: {query!r}. "
                "Convert the sentence, or set the terminal to UTF-8."
            ) from error


def check_flags(queries):
    """Refuses flags that make no question."""
    by_image = bool(_IMAGE.value)
    if by_image == bool(queries) or by_image != bool(_CAPTIONS.value):
        raise InputError(
            "`query.py` must be asked by sentences, or by --image and "
            f"--captions. Received: {len(queries)} sentences, --image="
            f"{_IMAGE.value}, --captions={_CAPTIONS.value}. Write for example "
            'query.py --images=FOLDER "a dog in the snow".'
        )
    check_text(queries)
    for flag in (_MONTAGE, _HTML):
        if not flag.value:
            continue
        if by_image or not _IMAGES.value:
            raise InputError(
                f"`--{flag.name}` must come with sentences and with --images, "
                f"the folder of the photos. Received: --images={_IMAGES.value}"
                f", {len(queries)} sentences. Add --images=FOLDER."
            )
        if not pathlib.Path(flag.value).absolute().parent.is_dir():
            raise InputError(
                f"`--{flag.name}` must be a file in a folder that is there. "
                f"Received: --{flag.name}={flag.value}. Make the folder, or "
                "choose another."
            )


def open_model():
    """Loads --model, which must compare sentences with whole images."""
    model = zoo.open_model(_MODEL.value, _TRUST.value)
    if not model.has("embed_image", "embed_text"):
        raise InputError(
            "`--model` must be a network for whole images. Received: --model="
            f"{_MODEL.value}, which has {sorted(model.signatures)}. Ask one "
            f"that finds regions by tools/localize.py --model={_MODEL.value} "
            'PHOTO "a red ball".'
        )
    if not model.takes_captions:
        raise InputError(
            "`--model` must take captions. Received: --model="
            f"{_MODEL.value}, which takes text features. Use a network "
            "that was trained on captions."
        )
    return model


def main(argv):
    """Answers the queries."""
    check_flags(argv[1:])
    model = open_model()
    if _IMAGE.value:
        answer_image(model)
    else:
        answer_texts(model, argv[1:])


if __name__ == "__main__":
    startup.run_tool(main)
