"""What a SavedModel can be asked about regions and the phrases for them."""

import tensorflow as tf

from tbnets.serving.doors import bounded, require_rows
from tbnets.serving.endpoints import (
    Endpoints,
    Side,
    embedding,
    inference,
    text_spec,
    two_sided,
)
from tbnets.serving.photo_reader import PhotoReader, require_photos


def region_endpoints(
    model, tokenizer, *, region_dim, text_dim=None, read_regions=None
):
    """Returns the endpoints of a model that embeds regions and phrases.

    Signatures (`n` regions, `m` phrases):

    - `embed_phrases`: `phrases` string `[m]` (or `text_features` float32 `[m,
      text_dim]`, or `trees` int32 `[m, nodes, 6]`) -> `embeddings` float32
      `[m, embedding_dim]`; the default;
    - `embed_regions`: `region_features` float32 `[n, region_dim]` ->
      `embeddings` `[n, embedding_dim]`;
    - `compare`: `phrase_embeddings` and `region_embeddings` ->
      `similarities` `[m, n]`, larger is closer;
    - `score`: phrases and `region_features` -> `similarities` `[m, n]`;
    - `localize`, where photos can be read: phrases, `image_bytes` string
      `[]` and `boxes` float32 `[n, 4]` in pixels of the upright photo ->
      `similarities` `[m, n]` and `status`, string `[]`: "", or what is wrong
      with the photo, of which all similarities are then 0;
    - `localize_strict`: the same without `status`; what is no photo fails the
      call.

    Args:
        model: has `embed_images`, `embed_text` and `similarities`, as
            `models.two_branch.TwoBranchModel`.
        tokenizer: turns strings into what `embed_text` takes; None where
            phrases are feature vectors; a `serving.tree_reader.TreeReader`
            where they are trees.
        region_dim: features of a region.
        text_dim: features of a phrase; None where there is a tokenizer.
        read_regions: what a `photo_reader.PhotoReader` takes of regions; None
            for no `localize`.
    """
    tokenizer = bounded(tokenizer)
    spec = text_spec(tokenizer, text_dim, "phrases")
    embed_phrases = inference(model.embed_text, tokenizer)
    phrases = Side("embed_phrases", "phrase_embeddings", spec, embed_phrases)
    regions = _regions(region_dim, model.embed_images)

    def similarities(texts, rows):
        return tf.transpose(model.similarities(rows, texts))

    functions = two_sided(phrases, regions, similarities, model.embedding_dim)
    reader = None
    if read_regions is not None:
        reader = PhotoReader(read_regions)
        functions |= _localization(reader, phrases, regions, similarities)
    return Endpoints(functions, "embed_phrases", tokenizer, reader)


def node_endpoints(model, reader, region_dim):
    """Returns the endpoints of a model that embeds noun phrases and regions.

    Signatures (`m` trees, `p` noun phrases in them, `n` regions):

    - `embed_regions`: `region_features` float32 `[n, region_dim]` ->
      `embeddings` float32 `[n, embedding_dim]`;
    - `embed_noun_phrases`: `trees` int32 `[m, nodes, 6]` -> `embeddings`
      float32 `[p, embedding_dim]`, `captions` int32 `[p]`, which of the trees
      each phrase is in, and `spans` int32 `[p, 2]`, its words.

    Args:
        model: a `models.hm_lstm.HMLSTM`.
        reader: `serving.tree_reader.TreeReader`.
        region_dim: features of a region.

    Returns:
        dict, name -> `tf.function`.
    """

    @tf.function(input_signature=[reader.spec])
    def embed_noun_phrases(rows):
        embeddings, captions, spans = model.embed_noun_phrases(reader(rows))
        return {"embeddings": embeddings, "captions": captions, "spans": spans}

    return {
        "embed_regions": embedding(_regions(region_dim, model.embed_regions)),
        "embed_noun_phrases": embed_noun_phrases,
    }


def _regions(region_dim, method):
    """Returns the `Side` of regions, which a network's method embeds."""
    spec = tf.TensorSpec([None, region_dim], tf.float32, "region_features")
    return Side("embed_regions", "region_embeddings", spec, inference(method))


def _localization(reader, phrases, regions, similarities):
    """Returns the endpoints that begin with a photo.

    Args:
        reader: a `PhotoReader`.
        phrases: a `Side`, and
        regions: another, of what the reader makes of boxes.
        similarities: function of embeddings of both.
    """
    photo = tf.TensorSpec([], tf.string, "image_bytes")
    signature = [phrases.spec, photo, tf.TensorSpec([None, 4], name="boxes")]

    # A function of its own, so that the SavedModel has it once.
    @tf.function(input_signature=signature, autograph=False)
    def answers(texts, image_bytes, boxes):
        boxes = require_rows(
            boxes,
            tf.reduce_all(boxes[:, :2] <= boxes[:, 2:], axis=1),
            "`boxes` must be corners, x_min <= x_max and y_min <= y_max. "
            "Received: others in row",
        )
        rows, status = reader.regions(image_bytes, boxes)
        rows = tf.ensure_shape(rows, regions.spec.shape)
        values = similarities(phrases.embed(texts), regions.embed(rows))
        return tf.where(tf.equal(status, ""), values, 0.0), status

    @tf.function(input_signature=signature, autograph=False)
    def localize(texts, image_bytes, boxes):
        values, status = answers(texts, image_bytes, boxes)
        return {"similarities": values, "status": status}

    @tf.function(input_signature=signature, autograph=False)
    def localize_strict(texts, image_bytes, boxes):
        found = answers(texts, image_bytes, boxes)
        return {"similarities": require_photos(*found)}

    return {"localize": localize, "localize_strict": localize_strict}
