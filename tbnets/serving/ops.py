"""Which ops an exported graph may have.

Two things stand behind the list. TensorFlow Serving refuses a graph with an
op that it does not know. And an op can do what its author likes: write a
file, read one, call another machine. So what is exported, and what is loaded
again, has ops that compute and no others.
"""

import re

import tensorflow as tf
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
"""The ops of TF Text 2.12.1, which TensorFlow Serving includes up to 2.19.1.

A server refuses a graph with an op that it does not know. TensorFlow Serving
2.20.0 includes TF Text 2.20.0, which has all of these.
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
    BatchDatasetV2 ConcatenateDataset DatasetToSingleElement
    IgnoreErrorsDataset OptionsDataset ParallelMapDatasetV2 TakeDataset
    TensorDataset TensorSliceDataset
    """.split()
)
"""Those of TensorFlow's own ops that keep something, and keep it to
themselves: weights, tables, random states; and at the end those of `tf.data`
that photos are decoded by (`photo_reader`)."""
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
    if op in TF_TEXT_SERVING_OPS | KEEPING_OPS:
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
    ops = _ops_of(graph_def.node, graph_def.library.function)
    unknown = sorted(op for op in ops if not is_allowed(op))
    if unknown:
        raise InputError(
            f"`{name}` must be a graph of ops that compute and no more, "
            f"TensorFlow's own and those of TF Text 2.12.1. Received: {unknown}"
            ". Replace what makes these ops in the model."
        )


def foreign_ops(graphs):
    """Finds the ops of a SavedModel that `check_ops` would not let out.

    Nothing of it is executed.

    Args:
        graphs: its `MetaGraphDef`s.

    Returns:
        Sorted list of names.
    """
    ops = set().union(*map(_ops_called, graphs))
    return sorted(op for op in ops if not is_allowed(op))


def _ops_called(graph):
    """Returns the ops of a `MetaGraphDef`, but for what its saver may do."""
    functions = graph.graph_def.library.function
    saver = graph.saver_def
    names = (saver.save_tensor_name, saver.restore_op_name)
    names = {name.partition(":")[0].lstrip("^") for name in names}
    called = graph.object_graph_def.concrete_functions
    own = [n for n in graph.graph_def.node if n.name not in names]
    own += [
        n for f in functions if f.signature.name in called for n in f.node_def
    ]
    saving = [n for n in graph.graph_def.node if n.name in names]
    return _ops_of(own, functions) | (_ops_of(saving, functions) - SAVER_OPS)


def _ops_of(nodes, functions):
    """Returns the ops of nodes, and of all functions that these call."""
    library = {one.signature.name: one.node_def for one in functions}
    ops, seen, left = set(), set(), [nodes]
    while left:
        nodes = left.pop()
        direct = {node.op for node in nodes}
        called = {call.name for node in nodes for call in calls(node)} | direct
        left += [library[one] for one in (called & library.keys()) - seen]
        ops |= direct
        seen |= called
    return ops - library.keys()


def calls(node):
    """Yields the `NameAttrList` of each function that a node calls."""
    for value in node.attr.values():
        yield from [value.func] if value.HasField("func") else value.list.func
