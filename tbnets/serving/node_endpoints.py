"""What a SavedModel can be asked about regions and noun phrases."""

import tensorflow as tf


def node_endpoints(model, reader, region_dim):
    """Returns the endpoints of a model that embeds phrases and regions.

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
    regions = tf.TensorSpec([None, region_dim], tf.float32, "region_features")

    @tf.function(input_signature=[regions])
    def embed_regions(rows):
        return {"embeddings": model.embed_regions(rows, training=False)}

    @tf.function(input_signature=[reader.spec])
    def embed_noun_phrases(rows):
        embeddings, captions, spans = model.embed_noun_phrases(reader(rows))
        return {"embeddings": embeddings, "captions": captions, "spans": spans}

    return {
        "embed_regions": embed_regions,
        "embed_noun_phrases": embed_noun_phrases,
    }
