r"""Ranks images for sentences, or sentences for an image, by a SavedModel.

A folder of photos, with a network that was trained from pixels:

  python tools/query.py --images=photos "a dog in the snow" "two children"

A store or file of features, with a network that was trained on such
features; the photos are then only for the picture:

  python tools/query.py --saved_model=runs/flickr8k \
      --image_features=test_ims.npy --images=photos --montage=answers.png \
      "a dog in the snow"

The other way round, an image against the lines of a text file (the image is
a photo, or an id of --image_features):

  python tools/query.py --image=photos/dog.jpg --captions=captions.txt

Each answer has its rank, its similarity (the cosine, 1 is identical) and the
id of the image, or the caption. Words the network was never shown are named:
they do not count. A file that is no photo is named with the reason, left out
and counted.
"""

import pathlib

from absl import flags

from tbnets import startup

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import images
from tbnets.pictures import montage
from tbnets.serving import search
from tbnets.serving import served_model
from tbnets.store.opening import open_features

_SAVED_MODEL = flags.DEFINE_string(
    "saved_model",
    "runs/quickstart",
    "Folder of a run of tools/train.py, whose newest SavedModel is asked; or "
    "of one version, RUN/saved_model/1.",
)
_IMAGES = flags.DEFINE_string(
    "images", None, "Folder of .jpg and .png files, subfolders included."
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
_TOP = flags.DEFINE_integer("top", 5, "Answers per query.", lower_bound=1)
_MONTAGE = flags.DEFINE_string(
    "montage", None, "PNG to write: a row per query with its best images."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Images or captions embedded at once.", lower_bound=1
)


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
        return search.embed_photos(
            model, pathlib.Path(_IMAGES.value), batch_size=_BATCH_SIZE.value
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
    if model.takes_image_bytes:
        images.read_photo(_IMAGE.value)  # Its errors name the file.
        return model.embed_images([pathlib.Path(_IMAGE.value).read_bytes()])
    if not _IMAGE_FEATURES.value:
        raise ValueError(
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


def answer_image(model):
    """Ranks the captions of --captions for --image."""
    captions = read_captions(_CAPTIONS.value)
    query = embed_query_image(model)
    embeddings = search.embed(
        model.embed_text, captions, "caption", _BATCH_SIZE.value
    )
    order, similarities = search.rank(query, embeddings, _TOP.value)
    title = f"{_IMAGE.value} among {len(captions)} captions"
    answers = [captions[i] for i in order[0]]
    print(search.format_answers(title, similarities[0], answers))


def answer_texts(model, queries):
    """Ranks the images for each query, and draws the montage."""
    ids, embeddings = embed_images(model)
    text, order, similarities = search.answer_queries(
        model, queries, ids, embeddings, _TOP.value
    )
    print(text)
    if _MONTAGE.value:
        sheet = montage.draw_montage(
            queries, ids, order, similarities, _IMAGES.value
        )
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
    model = served_model.load_saved_model(_SAVED_MODEL.value)
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
