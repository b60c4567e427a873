"""Restricts the ops of exported graphs.

TensorFlow Serving rejects unknown ops. Some ops access files or other machines.
Therefore, exported and loaded graphs may contain only purely computational ops.
"""

import pathlib

from tbnets.errors import InputError

_FILE = pathlib.Path(__file__).with_name("allowed_ops.txt")
ALLOWED_OPS = frozenset(_FILE.read_text().splitlines())
"""Ops that a graph may contain. The file's comments match no op."""
SAVER_OPS = frozenset(
    ["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"]
)
"""Ops that save and restore a SavedModel's own variables, in functions that no
signature calls."""


def check_ops(name, graph_def):
    """Raises a ValueError if TensorFlow Serving cannot load a `GraphDef`."""
    ops = _ops_of(graph_def.node, graph_def.library.function)
    if unknown := sorted(ops - ALLOWED_OPS):
        raise InputError(
            name,
            "be a graph with only computing ops of TensorFlow and TF Text "
            "2.12.1",
            unknown,
            "Replace the layers that use these ops.",
        )


def foreign_ops(graphs):
    """Returns the sorted names of the forbidden ops in `MetaGraphDef`s."""
    return sorted(set().union(*map(_ops_called, graphs)) - ALLOWED_OPS)


def _ops_called(graph):
    """Returns the ops of a `MetaGraphDef`, except `SAVER_OPS` in its saver."""
    functions = graph.graph_def.library.function
    saver = graph.saver_def
    names = (saver.save_tensor_name, saver.restore_op_name)
    names = {name.partition(":")[0].lstrip("^") for name in names}
    called = graph.object_graph_def.concrete_functions
    nodes = [n for n in graph.graph_def.node if n.name not in names]
    nodes += [
        n for f in functions if f.signature.name in called for n in f.node_def
    ]
    saving = [n for n in graph.graph_def.node if n.name in names]
    return _ops_of(nodes, functions) | (_ops_of(saving, functions) - SAVER_OPS)


def _ops_of(nodes, functions):
    library = {f.signature.name: f.node_def for f in functions}
    ops, seen, pending = set(), set(), [nodes]
    while pending:
        nodes = pending.pop()
        direct = {node.op for node in nodes}
        called = {call.name for node in nodes for call in calls(node)} | direct
        pending += [library[name] for name in (called & library.keys()) - seen]
        ops |= direct
        seen |= called
    return ops - library.keys()


def calls(node):
    """Yields the `NameAttrList` of each function that a node calls."""
    for value in node.attr.values():
        yield from [value.func] if value.HasField("func") else value.list.func
