"""Which ops an exported graph may have.

Two things stand behind the list. TensorFlow Serving refuses a graph with an
op that it does not know. And an op can do what its author likes: write a
file, read one, call another machine. So what is exported, and what is loaded
again, has ops that compute and no others.
"""

import re

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

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
released, and refuse a graph with any op they do not know.
"""
KEEPING_OPS = frozenset(
    """
    Assert AssignAddVariableOp AssignSubVariableOp AssignVariableOp Case
    CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNV2
    CudnnRNNV3
    DestroyResourceOp DisableCopyOnRead HashTableV2 If LookupTableFindV2
    LookupTableImportV2 LookupTableSizeV2 MutableHashTableV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt ReadVariableOp
    ResourceGather ResourceGatherNd StatefulPartitionedCall TensorArrayCloseV3
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3
    TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3
    TensorArrayWriteV3 TruncatedNormal VarHandleOp VarIsInitializedOp While
    """.split()
)
"""Those of TensorFlow's own ops that keep something, and keep it to
themselves: weights, tables, random states."""
PIPELINE_OPS = frozenset(
    """
    BatchDatasetV2 ConcatenateDataset DatasetToSingleElement
    IgnoreErrorsDataset OptionsDataset ParallelMapDatasetV2 TakeDataset
    TensorDataset TensorSliceDataset
    """.split()
)
"""Those of `tf.data` that photos are decoded by (`photo_reader`)."""
SAVER_OPS = frozenset(
    ["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"]
)
"""What each SavedModel has for its own variables, in functions of their own
that no signature calls."""
_REACHES_OUT = re.compile(
    "Dataset|Iterator|File|Sharded|Checkpoint|Remap|Reader|Debug|PyFunc|Proto"
    "|TPU|Xla|Collective|Experimental|Remote|Infeed|Outfeed|Barrier|CopyHost"
)
"""What names of ops have that touch files, machines or Python, though they
keep nothing."""
MOST_GRAPH_BYTES = 1 << 29


def is_allowed(op):
    """Tells whether an op computes and no more, as far as that is known.

    Args:
        op: its name in a graph.
    """
    if op in TF_TEXT_SERVING_OPS | KEEPING_OPS | PIPELINE_OPS:
        return True
    definition = op_def_registry.get(op) if hasattr(tf.raw_ops, op) else None
    return (
        definition is not None
        and not definition.is_stateful
        and not _REACHES_OUT.search(op)
    )


def check_ops(name, graph_def):
    """Refuses a graph that TensorFlow Serving could not load.

    Args:
        name: what to call the graph in the error.
        graph_def: a `GraphDef`; the functions it calls are checked too.

    Raises:
        ValueError: an op is not allowed; names it.
    """
    functions = graph_def.library.function
    ops = {node.op for node in graph_def.node}
    ops.update(node.op for function in functions for node in function.node_def)
    ops -= {function.signature.name for function in functions}
    unknown = sorted(op for op in ops if not is_allowed(op))
    if unknown:
        raise InputError(
            f"`{name}` must be a graph of ops that compute and no more: "
            "TensorFlow's own and those of TF Text 2.12.1, which TensorFlow "
            f"Serving knows. Received: {unknown}. Replace what makes these ops "
            "in the model."
        )


def foreign_ops(content):
    """Finds the ops of a SavedModel that `check_ops` would not let out.

    Nothing of it is executed.

    Args:
        content: bytes of its `saved_model.pb`.

    Returns:
        Sorted list of names.

    Raises:
        google.protobuf.message.DecodeError: the bytes are none.
    """
    foreign = set()
    for graph in saved_model_pb2.SavedModel.FromString(content).meta_graphs:
        foreign |= _foreign_ops(graph)
    return sorted(foreign)


def _foreign_ops(graph):
    """Returns the ops of a `MetaGraphDef` that are not allowed."""
    library = {
        function.signature.name: function.node_def
        for function in graph.graph_def.library.function
    }
    savers = {
        name.partition(":")[0].lstrip("^")
        for name in (
            graph.saver_def.save_tensor_name,
            graph.saver_def.restore_op_name,
        )
    }
    own = [n for n in graph.graph_def.node if n.name not in savers]
    saver = [n for n in graph.graph_def.node if n.name in savers]
    called = {*graph.object_graph_def.concrete_functions, *_calls(own)}
    ops = {node.op for node in own} | _ops_of(called, library)
    saved = {node.op for node in saver} | _ops_of(_calls(saver), library)
    ops = (ops | (saved - SAVER_OPS)) - library.keys()
    return {op for op in ops if not is_allowed(op)}


def _ops_of(names, library):
    """Returns the ops of functions, and of all that these call."""
    ops, left, seen = set(), set(names) & library.keys(), set()
    while left:
        name = left.pop()
        seen.add(name)
        nodes = library[name]
        ops.update(node.op for node in nodes)
        left |= (_calls(nodes) & library.keys()) - seen
    return ops


def _calls(nodes):
    """Returns the names of functions that nodes call."""
    names = {node.op for node in nodes}
    for node in nodes:
        for value in node.attr.values():
            called = [value.func] if value.HasField("func") else value.list.func
            names.update(function.name for function in called)
    return names
