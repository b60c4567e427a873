"""Converts captions to words, ids and trees.

`vocabulary` splits captions into words and maps words to ids in a graph;
`plain_tokenizer` does so without TensorFlow. `parsing` parses captions,
`trees` reads the trees, and `packed_trees` converts them to arrays.
`word_vectors` reads pretrained vectors.
"""
