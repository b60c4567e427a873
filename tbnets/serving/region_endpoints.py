"""What a SavedModel of phrase localization can be asked."""

import tensorflow as tf

from tbnets.serving.export import Endpoints


def region_endpoints(
    model, tokenizer, *, region_dim, text_dim=None, read_regions=None
):
    """Returns the endpoints of a model that embeds regions and phrases.

    Signatures (`n` regions, `m` phrases):

    - `embed_phrases`: `phrases` string `[m]` (or `text_features` float32 `[m,
      text_dim]`) -> `embeddings` float32 `[m, embedding_dim]`; the default;
    - `embed_regions`: `region_features` float32 `[n, region_dim]` ->
      `embeddings` `[n, embedding_dim]`;
    - `compare`: `phrase_embeddings` and `region_embeddings` ->
      `similarities` `[m, n]`, larger is closer;
    - `score`: phrases and `region_features` -> `similarities` `[m, n]`;
    - `localize`, where photos can be read: phrases, `image_bytes` string
      `[]` and `boxes` float32 `[n, 4]` in pixels of the upright photo ->
      `similarities` `[m, n]`.

    Args:
        model: has `embed_images`, `embed_text` and `similarities`, as
            `models.two_branch.TwoBranchModel`.
        tokenizer: turns strings into what `embed_text` takes; None where
            phrases are feature vectors.
        region_dim: features of a region.
        text_dim: features of a phrase; None where there is a tokenizer.
        read_regions: function of TensorFlow operations: (string `[]`, boxes
            `[n, 4]`) -> `[n, region_dim]`; None for no `localize`.
    """
    phrases = _phrase_spec(tokenizer, text_dim)
    regions = tf.TensorSpec([None, region_dim], tf.float32, "region_features")
    sides = [
        tf.TensorSpec([None, model.embedding_dim], tf.float32, name)
        for name in ("phrase_embeddings", "region_embeddings")
    ]
    read = tokenizer or tf.identity

    # Functions of their own, so that the SavedModel has them once.
    @tf.function(input_signature=[phrases])
    def of_phrases(texts):
        return model.embed_text(read(texts), training=False)

    @tf.function(input_signature=[regions])
    def of_regions(rows):
        return model.embed_images(rows, training=False)

    @tf.function(input_signature=sides)
    def similarities(texts, rows):
        return tf.transpose(model.similarities(rows, texts))

    @tf.function(input_signature=[phrases])
    def embed_phrases(texts):
        return {"embeddings": of_phrases(texts)}

    @tf.function(input_signature=[regions])
    def embed_regions(rows):
        return {"embeddings": of_regions(rows)}

    @tf.function(input_signature=sides)
    def compare(texts, rows):
        return {"similarities": similarities(texts, rows)}

    @tf.function(input_signature=[phrases, regions])
    def score(texts, rows):
        return {
            "similarities": similarities(of_phrases(texts), of_regions(rows))
        }

    functions = {
        "embed_phrases": embed_phrases,
        "embed_regions": embed_regions,
        "compare": compare,
        "score": score,
    }
    if read_regions is not None:

        def score_photo(texts, image_bytes, boxes):
            rows = read_regions(image_bytes, boxes)
            rows = tf.ensure_shape(rows, [None, region_dim])
            return similarities(of_phrases(texts), of_regions(rows))

        functions["localize"] = _localization(phrases, score_photo)
    return Endpoints(functions, "embed_phrases", tokenizer)


def _phrase_spec(tokenizer, text_dim):
    """Returns the `tf.TensorSpec` of phrases."""
    if tokenizer is None:
        return tf.TensorSpec([None, text_dim], tf.float32, "text_features")
    return tf.TensorSpec([None], tf.string, "phrases")


def _localization(phrases, score_photo):
    """Returns the endpoint that begins with a photo."""
    photo = tf.TensorSpec([], tf.string, "image_bytes")
    boxes = tf.TensorSpec([None, 4], tf.float32, "boxes")

    @tf.function(input_signature=[phrases, photo, boxes])
    def localize(texts, image_bytes, boxes):
        return {"similarities": score_photo(texts, image_bytes, boxes)}

    return localize
