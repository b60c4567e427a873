"""Stores the weights of an exported graph as float16.

This halves the size of an exported model. The graph is rewritten: it reads the
float16 copy of a weight and casts it to float32. Vectors remain float32: they
are small, and variances of batch normalisation may exceed the range of float16.
"""

import copy
import zlib

import tensorflow as tf

from tbnets.errors import InputError
from tbnets.serving.saved_files import calls

_FLOAT, _HALF = tf.float32.as_datatype_enum, tf.float16.as_datatype_enum
_READS = {
    # Op that reads a variable -> name of its output.
    "ReadVariableOp": "value",
    "ResourceGather": "output",
}


def copy_halved(variables):
    """Makes float16 copies of the float32 variables with at least two axes.

    Returns:
        dict that maps the `id` of each copied variable to its float16 copy.
    """
    halves = {}
    for variable in variables:
        if variable.dtype != tf.float32 or variable.shape.rank < 2:
            continue
        values = tf.cast(variable, tf.float16)
        if not bool(tf.reduce_all(tf.math.is_finite(values))):
            largest = float(tf.reduce_max(tf.abs(variable)))
            raise InputError(
                "half_precision",
                "be used only with weights of at most 65504",
                f"{variable.name} with {largest:g}",
                "Export in full precision.",
            )
        name = variable.name.partition(":")[0]
        halves[id(variable)] = tf.Variable(values, trainable=False, name=name)
    return halves


def with_halves(function, halves):
    """Returns an equivalent concrete function that reads float16 weights."""
    halved = [v for v in function.variables if id(v) in halves]
    by_handle = {id(v.handle): halves[id(v)].handle for v in halved}
    outer, inner = function.captured_inputs, function.graph.inputs
    count = len(inner) - len(outer)
    arguments, captured = inner[:count], list(zip(inner[count:], outer))
    graph_def = _Rewriter(function.graph.as_graph_def()).rewrite(
        {old.op.name for old, handle in captured if id(handle) in by_handle},
        {old.op.name for old in inner},
    )

    @tf.function(
        input_signature=function.structured_input_signature[0], autograph=False
    )
    def call(*inputs):
        here = {old.name: new for old, new in zip(arguments, inputs)}
        for old, handle in captured:  # Captures the variables.
            here[old.name] = tf.identity(by_handle.get(id(handle), handle))
        outputs = tf.graph_util.import_graph_def(
            graph_def,
            here,
            [output.name for output in function.outputs],
            name="",
        )
        return tf.nest.pack_sequence_as(function.structured_outputs, outputs)

    return call.get_concrete_function()


class _Rewriter:
    """Rewrites a `GraphDef` and the functions that it calls, in place."""

    def __init__(self, graph_def):
        self.graph_def = graph_def
        library = graph_def.library.function
        self.old_functions = {f.signature.name: f for f in library}
        self.new_functions = {}  # (old name, halved arguments) -> function.

    def rewrite(self, halved, dropped):
        """Returns the rewritten `GraphDef`, without the nodes in `dropped`.

        Both arguments are sets of node names. `halved` names handles of float16
        weights.
        """
        nodes = [n for n in self.graph_def.node if n.name not in dropped]
        nodes, _ = self._rewrite_nodes(nodes, halved, in_body=False)
        result = tf.compat.v1.GraphDef(versions=self.graph_def.versions)
        result.node.extend(nodes)
        result.library.function.extend(self.new_functions.values())
        return result

    def _rewrite_nodes(self, nodes, halved, in_body):
        written, renamed = [], {}
        for node in nodes:
            inputs = [i.partition(":")[0] for i in node.input if i[0] != "^"]
            halved_inputs = [
                i for i, name in enumerate(inputs) if name in halved
            ]
            if halved_inputs and node.op in _READS:
                written += _read_and_cast(node, in_body)
                renamed[f"{node.name}:{_READS[node.op]}:0"] = f"{node.name}:y:0"
                continue
            # The first input of `If` and `Case` is not an argument.
            is_branch = node.op.endswith(("If", "Case"))
            halved_inputs = tuple(i - is_branch for i in halved_inputs)
            for call in calls(node):
                call.name = self._rewrite_function(call.name, halved_inputs)
            written.append(node)
        for node in written:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        return written, renamed

    def _rewrite_function(self, name, halved_inputs):
        """Copies a function to take float16 arguments. Returns its new name."""
        if (name, halved_inputs) in self.new_functions:
            return self.new_functions[name, halved_inputs].signature.name
        function = copy.deepcopy(self.old_functions[name])
        self.new_functions[name, halved_inputs] = function
        if halved_inputs:
            # Several graphs may share the function, so its name must be
            # deterministic.
            which = zlib.crc32(repr(halved_inputs).encode())
            function.signature.name = f"{name}_half_{which:08x}"
        arguments = [argument.name for argument in function.signature.input_arg]
        halved = {arguments[i] for i in halved_inputs}
        nodes, renamed = self._rewrite_nodes(
            function.node_def, halved, in_body=True
        )
        nodes = copy.deepcopy(nodes)
        for key, value in function.ret.items():
            function.ret[key] = renamed.get(value, value)
        del function.node_def[:]
        function.node_def.extend(nodes)
        return function.signature.name


def _read_and_cast(node, in_body):
    reader, cast = copy.deepcopy(node), type(node)(name=node.name, op="Cast")
    reader.name = f"{node.name}/half"
    reader.attr["dtype"].type = _HALF
    output = f":{_READS[node.op]}" if in_body else ""
    cast.input.append(f"{reader.name}{output}:0")
    cast.attr["SrcT"].type, cast.attr["DstT"].type = _HALF, _FLOAT
    return [reader, cast]
