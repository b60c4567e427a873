"""What a SavedModel that embeds images and texts can be asked."""

import tensorflow as tf

from tbnets.losses import distances
from tbnets.serving.doors import bounded
from tbnets.serving.endpoints import Endpoints, text_spec
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
            `Tokenizer` or a `layers.fisher_vectors.CaptionReader`; a
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
    tokenizer = bounded(tokenizer)
    text = text_spec(tokenizer, text_dim)
    arrays = tf.TensorSpec([None, *image_shape], tf.float32, "image_features")
    read_text = tokenizer or tf.identity

    # Functions of their own, so that the SavedModel has them once.
    @tf.function(input_signature=[text])
    def text_embeddings(texts):
        return model.embed_text(read_text(texts), training=False)

    @tf.function(input_signature=[arrays])
    def array_embeddings(rows):
        return model.embed_images(rows, training=False)

    photos = None
    if read_photos is None:
        image, of_images = arrays, array_embeddings
        functions = {"embed_image": _embedding(arrays, array_embeddings)}
    else:
        photos = PhotoReader(read_photos)
        image = PHOTOS
        functions, of_images = _of_photos(photos, array_embeddings, arrays)
        if len(image_shape) == 1:
            functions["embed_features"] = _embedding(arrays, array_embeddings)
    functions["embed_text"] = _embedding(text, text_embeddings)
    learned = getattr(model, "learned_similarity", False)
    similarities = model.similarities if learned else distances.similarities

    @tf.function(input_signature=[image, text])
    def score(images, texts):
        embeddings = of_images(images), text_embeddings(texts)
        return {"similarities": similarities(*embeddings)}

    functions["score"] = score
    if learned:
        functions["compare"] = _comparison(model)
    return Endpoints(functions, "embed_text", tokenizer, photos)


def _embedding(spec, embed):
    """Returns the endpoint that embeds rows."""

    @tf.function(input_signature=[spec])
    def call(rows):
        return {"embeddings": embed(rows)}

    return call


def _of_photos(reader, array_embeddings, arrays):
    """Returns the endpoints that embed photos, and the strict one's function.

    Args:
        reader: the `PhotoReader`.
        array_embeddings: function of what the reader makes of them.
        arrays: `tf.TensorSpec` of that.
    """

    @tf.function(input_signature=[PHOTOS])
    def answers(images):
        rows, status = reader(images)
        embeddings = array_embeddings(tf.ensure_shape(rows, arrays.shape))
        is_photo = tf.equal(status, "")[:, None]
        return tf.where(is_photo, embeddings, 0.0), status

    def embeddings_of_all(images):
        return require_photos(*answers(images))

    @tf.function(input_signature=[PHOTOS])
    def embed_image(images):
        embeddings, status = answers(images)
        return {"embeddings": embeddings, "status": status}

    strict = _embedding(PHOTOS, embeddings_of_all)
    functions = {"embed_image": embed_image, "embed_image_strict": strict}
    return functions, embeddings_of_all


def _comparison(model):
    """Returns the endpoint that compares embeddings."""
    images, texts = (
        tf.TensorSpec([None, model.embedding_dim], tf.float32, name)
        for name in ("image_embeddings", "text_embeddings")
    )

    @tf.function(input_signature=[images, texts])
    def compare(images, texts):
        return {"similarities": model.similarities(images, texts)}

    return compare
