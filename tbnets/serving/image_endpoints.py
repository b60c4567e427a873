"""What a SavedModel that embeds images and texts can be asked."""

import tensorflow as tf

from tbnets.errors import InputError
from tbnets.losses import distances
from tbnets.serving.doors import bounded
from tbnets.serving.endpoints import (
    Endpoints,
    Side,
    embedding,
    inference,
    text_spec,
    two_sided,
)
from tbnets.serving.photo_reader import PhotoReader, require_photos

PHOTOS = tf.TensorSpec([None], tf.string, "image_bytes")


def two_branch_endpoints(
    model, tokenizer, *, image_shape, read_photos=None, text_dim=None
):
    """Returns the endpoints of a model that embeds images and texts.

    Signatures (`n` images, `m` captions, either may be 0):

    - `embed_text`: `captions` string `[m]` (or `text_features` float32 `[m,
      text_dim]`, or `trees` int32 `[m, nodes, 6]`) -> `embeddings` float32
      `[m, embedding_dim]`; also the default;
    - `embed_image`: `image_features` float32 `[n, *image_shape]` or
      `image_bytes` string `[n]` -> `embeddings` `[n, embedding_dim]`. Of
      photos also `status`, string `[n]`: "", or what is wrong with a photo,
      whose embedding is then 0;
    - `embed_image_strict`, of photos: the same without `status`; one that is
      none fails the call;
    - `score`: both inputs -> `similarities` `[n, m]`: cosines, or the logits
      of a model that learns to compare; a photo that is none fails the call;
    - `compare`, of such a model alone, whose embeddings have no meaningful
      cosines: `image_embeddings` float32 `[n, embedding_dim]` and
      `text_embeddings` `[m, embedding_dim]` -> `similarities` `[n, m]`;
    - `embed_features`: where photos are turned into feature vectors first,
      `image_features` float32 `[n, feature_dim]` -> `embeddings`.

    Args:
        model: has `embed_images(images, training)` and `embed_text(texts,
            training)`, both to float32 unit vectors `[n, embedding_dim]`;
            one that learns to compare has `learned_similarity`, True, and
            `similarities(image_embeddings, text_embeddings)`, too.
        tokenizer: turns string `[m]` into what `embed_text` takes: a
            `Tokenizer` or a `features.fisher_vectors.CaptionReader`; a
            `serving.tree_reader.TreeReader` where texts are trees; None where
            they are feature vectors. A `Tokenizer` without `max_tokens` gets
            `doors.MOST_WORDS`.
        image_shape: shape of one image as the model takes it: `(feature_dim,)`
            or `(size, size, 3)`.
        read_photos: None to serve such arrays; to serve JPEG and PNG files, a
            function of TensorFlow operations, string `[n]` -> `[n,
            *image_shape]`, as `images.decode_images` or a
            `features.photo_features.PhotoFeatures`.
        text_dim: dimension of text features; None where there is a tokenizer.

    Raises:
        ValueError: neither or both of `tokenizer` and `text_dim` are given.
    """
    if not isinstance(image_shape, tuple | list):
        raise InputError(
            "`image_shape` must be the shape of one image. Received: "
            f"image_shape={image_shape!r}. Write (feature_dim,) or (size, "
            "size, 3)."
        )
    tokenizer = bounded(tokenizer)
    spec = text_spec(tokenizer, text_dim)
    embed_text = inference(model.embed_text, tokenizer)
    texts = Side("embed_text", "text_embeddings", spec, embed_text)
    embed_arrays = inference(model.embed_images)
    spec = tf.TensorSpec([None, *image_shape], tf.float32, "image_features")
    images = Side("embed_image", "image_embeddings", spec, embed_arrays)
    learned = getattr(model, "learned_similarity", False)
    functions, photos = _compared(
        images,
        texts,
        read_photos,
        model.similarities if learned else distances.similarities,
        model.embedding_dim if learned else None,
    )
    return Endpoints(functions, "embed_text", tokenizer, photos)


def begin_with_photos(served, read_photos):
    """Returns what a model that takes features of images has for photos.

    Args:
        served: the `Served`, whose signatures may be called in a graph.
        read_photos: as in `two_branch_endpoints`.

    Returns:
        dict, name -> `tf.function`: what begins with images in
        `two_branch_endpoints`.
    """

    def side(name, embeddings):
        [spec] = served.inputs(name).values()
        embed = served.signatures[name]
        return Side(
            name,
            embeddings,
            spec,
            lambda rows: embed(**{spec.name: rows})["embeddings"],
        )

    def learned(rows, others):
        pair = {"image_embeddings": rows, "text_embeddings": others}
        return served.signatures["compare"](**pair)["similarities"]

    functions, _ = _compared(
        side("embed_image", "image_embeddings"),
        side("embed_text", "text_embeddings"),
        read_photos,
        learned if served.has("compare") else distances.similarities,
    )
    del functions["embed_text"]
    return functions


def _compared(images, texts, read_photos, *compared):
    """Returns functions of two `Side`s, and the `PhotoReader` or None.

    Args:
        images: of arrays.
        texts: of what is compared with them.
        read_photos: as in `two_branch_endpoints`.
        *compared: as `endpoints.two_sided` takes them.
    """
    functions, photos = {}, None
    if read_photos is not None:
        arrays, photos = images, PhotoReader(read_photos)
        functions["embed_image"], images = _of_photos(photos, arrays)
        if arrays.spec.shape.rank == 2:
            functions["embed_features"] = embedding(arrays)
    return functions | two_sided(images, texts, *compared), photos


def _of_photos(reader, arrays):
    """Returns the endpoint that embeds photos, and the `Side` of strict ones.

    Args:
        reader: the `PhotoReader`.
        arrays: the `Side` of what it makes of them.
    """

    def answers(images):
        rows, status = reader.photos(images)
        embeddings = arrays.embed(tf.ensure_shape(rows, arrays.spec.shape))
        is_photo = tf.equal(status, "")[:, None]
        return tf.where(is_photo, embeddings, 0.0), status

    # Functions of their own, so that the SavedModel has them once.
    answers = tf.function(answers, input_signature=[PHOTOS], autograph=False)

    @tf.function(input_signature=[PHOTOS], autograph=False)
    def embed_image(images):
        embeddings, status = answers(images)
        return {"embeddings": embeddings, "status": status}

    def embed_strictly(images):
        return require_photos(*answers(images))

    strict = Side(
        "embed_image_strict", arrays.embeddings, PHOTOS, embed_strictly
    )
    return embed_image, strict
