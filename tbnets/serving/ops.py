"""Which ops an exported graph may have."""

import tensorflow as tf

from tbnets.errors import InputError

TF_TEXT_SERVING_OPS = frozenset(
    """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize
    FastWordpieceTokenizeWithOffsets FindSourceOffsets MaxSpanningTree
    NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2
    SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
    SentencepieceStringToIdOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp
    SplitMergeTokenizeWithOffsets TFText>BoiseTagsToOffsets
    TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets
    TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin
    TFText>OffsetsToBoiseTags TFText>PhraseDetokenize
    TFText>WhitespaceTokenizeWithOffsetsV2 TokenizerFromLogits
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets
    WordpieceTokenizeWithOffsets
    """.split()
)
"""The ops of TF Text 2.12.1.

TensorFlow Serving's binaries carry that version, long after newer ones were
released, and refuse a graph with any op they do not know. So a graph is
exported only when each of its ops is TensorFlow's own or listed here.
"""


def check_ops(name, graph_def):
    """Refuses a graph that TensorFlow Serving could not load.

    Args:
        name: what to call the graph in the error.
        graph_def: a `GraphDef`; the functions it calls are checked too.

    Raises:
        ValueError: If an op is neither TensorFlow's own nor in
            `TF_TEXT_SERVING_OPS`; names the op.
    """
    functions = graph_def.library.function
    ops = {node.op for node in graph_def.node}
    ops.update(node.op for function in functions for node in function.node_def)
    ops -= {function.signature.name for function in functions}
    unknown = sorted(
        op
        for op in ops
        if op not in TF_TEXT_SERVING_OPS and not hasattr(tf.raw_ops, op)
    )
    if unknown:
        raise InputError(
            f"`{name}` must be a graph of TensorFlow's own ops and those of TF "
            f"Text 2.12.1, which TensorFlow Serving knows. Received: {unknown}."
            " Replace what makes these ops in the model."
        )
