"""What a SavedModel of phrase localization can be asked."""

import tensorflow as tf

from tbnets.serving.doors import bounded, require_rows
from tbnets.serving.endpoints import Endpoints, text_spec
from tbnets.serving.photo_reader import RegionReader, require_photos


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
        read_regions: `features.averaged_regions.AveragedFeatures`, or a
            function of TensorFlow operations: (string `[]`, boxes `[n, 4]`)
            -> `[n, region_dim]`; None for no `localize`.
    """
    tokenizer = bounded(tokenizer)
    phrases = text_spec(tokenizer, text_dim, "phrases")
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
    if read_regions is None:
        return Endpoints(functions, "embed_phrases", tokenizer)
    reader = RegionReader(read_regions)

    def answers(texts, image_bytes, boxes):
        rows, status = reader(image_bytes, boxes)
        rows = tf.ensure_shape(rows, [None, region_dim])
        values = similarities(of_phrases(texts), of_regions(rows))
        return tf.where(tf.equal(status, ""), values, 0.0), status

    functions |= _localization(phrases, answers)
    return Endpoints(functions, "embed_phrases", tokenizer, reader)


def _localization(phrases, answers):
    """Returns the endpoints that begin with a photo."""
    photo = tf.TensorSpec([], tf.string, "image_bytes")
    boxes = tf.TensorSpec([None, 4], tf.float32, "boxes")

    def checked(boxes):
        return require_rows(
            boxes,
            tf.reduce_all(boxes[:, :2] <= boxes[:, 2:], axis=1),
            "`boxes` must be corners, x_min <= x_max and y_min <= y_max. "
            "Received: others in row",
        )

    @tf.function(input_signature=[phrases, photo, boxes])
    def localize(texts, image_bytes, boxes):
        values, status = answers(texts, image_bytes, checked(boxes))
        return {"similarities": values, "status": status}

    @tf.function(input_signature=[phrases, photo, boxes])
    def localize_strict(texts, image_bytes, boxes):
        found = answers(texts, image_bytes, checked(boxes))
        return {"similarities": require_photos(*found)}

    return {"localize": localize, "localize_strict": localize_strict}
