"""Builds the endpoints, or signatures, of a SavedModel from a network."""

import dataclasses

import tensorflow as tf

from tbnets.losses import distances
from tbnets.serving.inputs import (
    PhotoReader,
    RawRows,
    bounded,
    require_photos,
    require_rows,
)
from tbnets.text.vocabulary import Tokenizer

PHOTOS = tf.TensorSpec([None], tf.string, "image_bytes")


def traced(*specs):
    """Returns a decorator that makes a `tf.function` with these input specs."""
    # A SavedModel stores the graph of a `tf.function` once, even if several
    # endpoints call it.
    return tf.function(input_signature=specs, autograph=False)


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """The endpoints of a SavedModel.

    Args:
        functions: dict of `tf.function`s. Each name becomes a signature and an
            attribute of the loaded object: `loaded.embed_text(captions)`.
        default: name of the default signature.
        tokenizer: `Tokenizer` in the graphs, or None.
        photos: `PhotoReader` in the graphs, or None.
    """

    functions: dict
    default: str
    tokenizer: Tokenizer | None = None
    photos: PhotoReader | None = None


class Side:
    """One of the two inputs that a network compares.

    `name` is the endpoint that embeds the input, such as `embed_text`. `spec`
    is the input's `tf.TensorSpec`. `embed` maps the input to embeddings,
    float32 `[n, embedding_dim]`.
    """

    def __init__(self, name, spec, embed):
        self.name, self.spec = name, spec
        self.embed = traced(spec)(embed)


def two_branch_endpoints(
    model, tokenizer, *, image_shape, read_photos=None, text_dim=None
):
    """Returns the endpoints of a model that embeds images and texts.

    docs/serving.md lists the signatures with their inputs and outputs. If some
    models do not have a signature, add it to `functions` under a condition,
    such as `images.spec.shape.rank == 2` for models of feature vectors.

    Args:
        model: network with `embed_images` and `embed_text`, which return unit
            vectors. If `learned_similarity` is True, its `similarities` method
            compares these vectors.
        tokenizer: a `Tokenizer`, whose `max_tokens` defaults to
            `inputs.MOST_WORDS`; a `CaptionReader`; a
            `inputs.TreeReader`; or None. With None, the model takes text
            features or the inputs of the network's own Keras layers.
        image_shape: shape of one image: `(feature_dim,)` or `(size, size, 3)`.
        read_photos: as in `export.export_saved_model`.
        text_dim: dimension of text features; None if there is a tokenizer.
    """
    texts, tokenizer = _texts("embed_text", model, tokenizer, text_dim)
    images = Side(
        "embed_image",
        tf.TensorSpec([None, *image_shape], tf.float32, "image_features"),
        lambda rows: model.embed_images(rows, training=False),
    )
    is_learned = getattr(model, "learned_similarity", False)
    similarities = model.similarities if is_learned else distances.similarities
    functions, photos = _whole_images(images, texts, similarities, read_photos)
    if is_learned:
        names = "image_embeddings", "text_embeddings"
        functions["compare"] = _compare(names, model, similarities)
    return Endpoints(functions, "embed_text", tokenizer, photos)


def begin_with_photos(served, read_photos, read_captions=None):
    """Returns endpoints that take photos, for a model that takes features.

    `read_photos` is as in `two_branch_endpoints`. `read_captions` maps captions
    to the text input of `served`; None if this input remains.
    """

    def side(name, read=None):
        [spec] = served.inputs(name).values()
        embed = served.signatures[name]

        def embeddings(rows):
            rows = read(rows) if read else rows
            return embed(**{spec.name: rows})["embeddings"]

        taken = tf.TensorSpec([None], tf.string, "captions") if read else spec
        return Side(name, taken, embeddings)

    def learned(rows, columns):
        pair = {"image_embeddings": rows, "text_embeddings": columns}
        return served.signatures["compare"](**pair)["similarities"]

    functions, _ = _whole_images(
        side("embed_image"),
        side("embed_text", read_captions),
        learned if served.has("compare") else distances.similarities,
        read_photos,
    )
    if not read_captions:
        del functions["embed_text"]
    return functions


def _whole_images(images, texts, similarities, read_photos):
    """Returns the endpoints of whole images and texts, and a `PhotoReader`.

    `images` and `texts` are `Side`s, which `similarities` compares. The
    `PhotoReader` is None if `read_photos` is None.
    """
    if read_photos is None:
        return _two_sided(images, texts, similarities), None
    functions, reader = {}, PhotoReader(read_photos)

    @traced(PHOTOS)
    def embed_photos(photos):
        rows, status = reader.photos(photos)
        embeddings = images.embed(tf.ensure_shape(rows, images.spec.shape))
        is_photo = tf.equal(status, "")[:, None]
        return tf.where(is_photo, embeddings, 0.0), status

    @traced(PHOTOS)
    def embed_image(photos):
        embeddings, status = embed_photos(photos)
        return {"embeddings": embeddings, "status": status}

    functions["embed_image"] = embed_image
    if images.spec.shape.rank == 2:
        functions["embed_features"] = _embedding(images)

    @traced(PHOTOS)
    def embed_cells(photos):
        values, status = reader.photos(photos, read_photos.maps)
        is_photo = tf.equal(status, "")[:, None, None, None]
        embeddings = tf.where(is_photo, embed_map(images.embed, values), 0.0)
        return {"embeddings": embeddings, "status": status}

    is_cosine = similarities is distances.similarities
    if is_cosine and getattr(read_photos, "maps", None):
        functions["embed_cells"] = embed_cells
    strict = Side(
        "embed_image_strict",
        PHOTOS,
        lambda photos: require_photos(*embed_photos(photos)),
    )
    return functions | _two_sided(strict, texts, similarities), reader


STEP = 1 / 64
"""Step of the finite difference in `embed_map`. Smaller steps lose digits."""


def embed_map(embed, maps):
    """Returns the contribution of each cell of a photo's map to its embedding.

    The features x of a photo are the mean of the cells m(c) of a map, and its
    embedding is e(x). For each cell c, computes the linear approximation of e
    at x::

        E(c) = e(x) + J(x) (m(c) - x),  J = de/dx

    The mean of E over the cells is e(x). The inner products of E(c) with the
    embedding of a text are therefore a heat map whose mean is the similarity of
    photo and text, for any differentiable branch. J (m(c) - x) is approximated
    by a finite difference, [e(x + h (m(c) - x)) - e(x)] / h.

    Args:
        embed: function from float32 `[n, dim]` to `[n, embedding_dim]`.
        maps: float32 `[n, height, width, dim]`.

    Returns:
        float32 `[n, height, width, embedding_dim]`.
    """
    height, width, dim = maps.shape[1:]
    means = tf.reduce_mean(maps, axis=[1, 2], keepdims=True)
    embeddings = embed(means[:, 0, 0])[:, None, None]
    moved = tf.reshape(means + STEP * (maps - means), [-1, dim])
    size = [-1, height, width, embeddings.shape[-1]]
    return embeddings + (tf.reshape(embed(moved), size) - embeddings) / STEP


def region_endpoints(
    model, tokenizer, *, region_dim, text_dim=None, read_regions=None
):
    """Returns the endpoints of a model that embeds regions and phrases.

    docs/serving.md lists the signatures with their inputs and outputs.

    Args:
        model: network with the methods of `models.two_branch.TwoBranchModel`.
        tokenizer: as in `two_branch_endpoints`.
        region_dim: number of features per region.
        text_dim: number of features per phrase; None if there is a tokenizer.
        read_regions: the `read` argument of a `PhotoReader` for regions, or
            None.
    """
    name, words = "embed_phrases", "phrases"
    phrases, tokenizer = _texts(name, model, tokenizer, text_dim, words)
    regions = _regions(region_dim, model.embed_images)

    def similarities(texts, rows):
        return tf.transpose(model.similarities(rows, texts))

    functions = _two_sided(phrases, regions, similarities)
    names = "phrase_embeddings", "region_embeddings"
    functions["compare"] = _compare(names, model, similarities)
    reader = None
    if read_regions is not None:
        reader = PhotoReader(read_regions)
        functions |= _localization(reader, phrases, regions, similarities)
    return Endpoints(functions, "embed_phrases", tokenizer, reader)


def node_endpoints(model, reader, region_dim):
    """Returns the endpoints of an `HMLSTM`, for noun phrases and regions.

    docs/serving.md lists the signatures with their inputs and outputs.
    """

    @traced(reader.spec)
    def embed_noun_phrases(rows):
        embeddings, captions, spans = model.embed_noun_phrases(reader(rows))
        return {"embeddings": embeddings, "captions": captions, "spans": spans}

    return {
        "embed_regions": _embedding(_regions(region_dim, model.embed_regions)),
        "embed_noun_phrases": embed_noun_phrases,
    }


def _regions(region_dim, method):
    spec = tf.TensorSpec([None, region_dim], tf.float32, "region_features")

    def embed(rows):
        return method(rows, training=False)

    return Side("embed_regions", spec, embed)


def _localization(reader, phrases, regions, similarities):
    photo = tf.TensorSpec([], tf.string, "image_bytes")
    signature = [phrases.spec, photo, tf.TensorSpec([None, 4], name="boxes")]

    @traced(*signature)
    def answers(texts, image_bytes, boxes):
        boxes = require_rows(
            boxes,
            tf.reduce_all(boxes[:, :2] <= boxes[:, 2:], axis=1),
            "`boxes` must be corners, x_min <= x_max and y_min <= y_max. "
            "Received: a different order in row",
        )
        rows, status = reader.regions(image_bytes, boxes)
        rows = tf.ensure_shape(rows, regions.spec.shape)
        values = similarities(phrases.embed(texts), regions.embed(rows))
        return tf.where(tf.equal(status, ""), values, 0.0), status

    @traced(*signature)
    def localize(texts, image_bytes, boxes):
        values, status = answers(texts, image_bytes, boxes)
        return {"similarities": values, "status": status}

    @traced(*signature)
    def localize_strict(texts, image_bytes, boxes):
        result = answers(texts, image_bytes, boxes)
        return {"similarities": require_photos(*result)}

    return {"localize": localize, "localize_strict": localize_strict}


def _embedding(side):
    @traced(side.spec)
    def embed(rows):
        return {"embeddings": side.embed(rows)}

    return embed


def _two_sided(first, second, similarities):
    """Returns the endpoints that embed two `Side`s and compare them.

    For each side, an endpoint with the side's name returns `embeddings`.
    `score` takes `n` and `m` inputs, and returns `similarities`, float32 `[n,
    m]`. The function `similarities` compares embeddings.
    """

    @traced(first.spec, second.spec)
    def score(rows, columns):
        rows, columns = first.embed(rows), second.embed(columns)
        return {"similarities": similarities(rows, columns)}

    functions = {side.name: _embedding(side) for side in (first, second)}
    return {**functions, "score": score}


def _compare(names, model, similarities):
    shape = [None, model.embedding_dim]

    @traced(*[tf.TensorSpec(shape, tf.float32, name) for name in names])
    def compare(rows, columns):
        return {"similarities": similarities(rows, columns)}

    return compare


def _texts(name, model, tokenizer, text_dim, strings="captions"):
    """Returns the `Side` of a network's texts, and the tokenizer to export.

    `name` is the endpoint that embeds texts. `tokenizer` and `text_dim` are as
    in `two_branch_endpoints`. `strings` is the input's name if it takes
    strings. The returned tokenizer may be a `RawRows`.
    """
    if tokenizer is None and text_dim is None:
        spec = getattr(model, "text_spec", None)
        tokenizer = spec and RawRows(spec, reader=model.text_reader)
    tokenizer = bounded(tokenizer)
    spec = tf.TensorSpec([None], tf.string, strings)
    spec = getattr(tokenizer, "spec", spec)
    if tokenizer is None:
        spec = tf.TensorSpec([None, text_dim], tf.float32, "text_features")

    def embed(texts):
        texts = texts if tokenizer is None else tokenizer(texts)
        return model.embed_text(texts, training=False)

    return Side(name, spec, embed), tokenizer
