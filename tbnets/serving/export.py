"""Exports networks as SavedModels that take raw input.

Each endpoint becomes a signature. The graph contains the tokenizer, the
vocabulary and the image decoder, so a program needs only TensorFlow and TF Text
to load the SavedModel.
"""

import contextlib
import copy
import importlib.metadata
import pathlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

import tbnets
from tbnets.checks import Path, checked_number
from tbnets.data.pictures import MAX_PIXELS
from tbnets.data.store.reader import file_sha256
from tbnets.errors import ExistingFileError, FileError, InputError, check_choice
from tbnets.files import new_folder, write_json
from tbnets.serving import saved_files
from tbnets.serving.checksums import hash_files
from tbnets.serving.endpoints import two_branch_endpoints
from tbnets.serving.inputs import guarded
from tbnets.serving.saved_files import (
    METADATA_FILE,
    SHA256,
    VOCABULARY_FILE,
    calls,
    check_ops,
)
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Tokenizer, Vocabulary

DEFAULT = "serving_default"
"""Name of the signature that a server calls if a request names none."""


def export_saved_model(  # noqa: PLR0913  (all but the first three by name)
    model: Any,
    vocabulary: Any,
    path: Path,
    *,
    image_shape: tuple[int, ...] | None = None,
    read_photos: Callable[[tf.Tensor], tf.Tensor] | None = None,
    text_dim: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    half_precision: bool = False,
    max_pixels: int | None = None,
) -> pathlib.Path:
    """Writes a model that embeds images and texts as a SavedModel.

    docs/serving.md lists the signatures.

    Args:
        model: a built network, such as `EmbeddingNetwork`.
        vocabulary: the run's `Vocabulary`, which truncates captions at 200
            words; a `Tokenizer`, which truncates them at its `max_tokens`; a
            `CaptionReader`, which computes text features; or None. With None,
            the SavedModel takes text features or the inputs of the network's
            own Keras layers.
        path: folder to write, which must not exist.
        image_shape: shape of one image: `(feature_dim,)` or `(size, size, 3)`;
            None for the shape of the training data.
        read_photos: function of TensorFlow operations that maps JPEG and PNG
            files, string `[n]`, to `[n, *image_shape]`; None to take arrays.
        text_dim: dimension of text features; None if the network reads words.
        metadata: JSON-ready dict to store with the model.
        half_precision: whether to store weights as float16, which halves the
            size.
        max_pixels: maximum number of pixels in a photo; None for the default.

    Returns:
        `path` as a `pathlib.Path`.

    Example:
        shape = image_features.shape[1:]
        tbnets.export_saved_model(
            network, vocabulary, "mine/1", image_shape=shape)
    """
    tokenizer = vocabulary
    if isinstance(vocabulary, Vocabulary):
        tokenizer = Tokenizer(vocabulary)
    _check_words(model, tokenizer)
    shapes = getattr(model, "input_shapes", None)
    if image_shape is None and shapes:
        image_shape = shapes["images"][1:]
    endpoints = two_branch_endpoints(
        model,
        tokenizer,
        image_shape=image_shape,
        read_photos=read_photos,
        text_dim=text_dim,
    )
    return write_saved_model(
        endpoints, path, metadata, half_precision, max_pixels
    )


def _check_words(model, tokenizer):
    # Custom layers may lack `vocabulary_size`.
    reader = getattr(model, "text_reader", None)
    size = getattr(reader, "vocabulary_size", None)
    is_comparable = isinstance(tokenizer, Tokenizer) and isinstance(size, int)
    if is_comparable and size != tokenizer.vocabulary.size:
        expected = f"have the {size} words of the network's text encoder"
        received = f"{tokenizer.vocabulary.size} words"
        raise InputError("vocabulary", expected, received)


def write_saved_model(  # noqa: PLR0913  (all but the first two by name)
    endpoints,
    path,
    metadata=None,
    half_precision=False,
    max_pixels=None,
    extra=None,
):
    """Writes endpoints as a SavedModel, which appears only when it is complete.

    Args:
        endpoints: `Endpoints`.
        path: folder to write, which must not exist.
        metadata: JSON-ready dict to store in `assets.extra/tbnets.json`.
        half_precision: whether to store weights as float16. Computation remains
            in float32.
        max_pixels: maximum number of pixels in a photo; None for
            `pictures.MAX_PIXELS`. Decoding takes about 6 bytes per pixel.
        extra: function that takes the folder and writes more files into its
            `assets.extra`.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        FileExistsError: `path` exists.
        OSError: the folder cannot be written. No partial files remain.
        ValueError: the graph has an op that TensorFlow Serving lacks, or a
            weight exceeds the range of float16.
    """
    path = check_new(path)
    tokenizer, photos = endpoints.tokenizer, endpoints.photos
    if max_pixels is not None:
        if photos is None:
            expected = "be used only with a network that takes photos"
            raise InputError("max_pixels", expected, max_pixels)
        photos.max_pixels = checked_number(
            "max_pixels", max_pixels, 1, whole=True, most=MAX_PIXELS
        )
    module, signatures = _traced(endpoints, half_precision)
    vocabulary = getattr(tokenizer, "vocabulary", None)
    description = {
        **versions(),
        "signatures": {n: describe_signature(f) for n, f in signatures.items()},
        "vocabulary_size": vocabulary and vocabulary.size,
        "max_tokens": tokenizer and tokenizer.max_tokens,
        "max_pixels": photos and photos.max_pixels,
        "metadata": metadata or {},
    }
    signatures = {DEFAULT: signatures[endpoints.default], **signatures}
    return save(module, signatures, path, description, vocabulary, extra)


def check_new(path):
    """Returns a `pathlib.Path`. Raises FileExistsError if it exists."""
    path = pathlib.Path(path)
    if path.exists() or path.is_symlink():
        raise ExistingFileError(
            f"`path` must not exist yet. Received: path='{path}'. Remove it, "
            f"or export to a new version, {next_version(path.parent)}."
        )
    return path


def save(root, signatures, path, description, vocabulary=None, extra=None):
    """Writes a complete SavedModel with its metadata, and returns its path.

    `root` tracks all variables of the signatures. `signatures` maps names to
    concrete functions, whose ops are checked. `description` is the metadata, to
    which the checksums are added. `extra` is as in `write_saved_model`.
    """
    for name, function in signatures.items():
        if name != DEFAULT:  # A copy of another signature.
            check_ops(name, function.graph.as_graph_def())
    # A served model needs no gradients, and some custom gradients cannot be
    # saved.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with new_model(path) as folder:
        tf.saved_model.save(root, str(folder), signatures, options)
        (folder / METADATA_FILE).parent.mkdir()
        if vocabulary is not None:
            vocabulary.save(folder / VOCABULARY_FILE)
        if extra is not None:
            extra(folder)
        description[SHA256] = hash_files(folder)
        write_json(folder / METADATA_FILE, description)
    return path


@contextlib.contextmanager
def new_model(path):
    """Yields a temporary folder, which becomes `path` after the block.

    Creates the parent folders. If the block raises an error, no files remain.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_folder(path) as folder:
            yield folder
    except (OSError, tf.errors.OpError) as error:
        raise FileError(
            f"`path` must be writable. Received: path='{path}' ({error})."
        ) from error


def _traced(endpoints, half_precision):
    # The module tracks concrete functions: saving a `tf.function` would trace
    # it again and store both graphs.
    functions = {n: guarded(f) for n, f in endpoints.functions.items()}
    used = {id(v): v for f in functions.values() for v in f.variables}
    if half_precision:
        halves = copy_halved(used.values())
        used.update(halves)
        functions = {n: with_halves(f, halves) for n, f in functions.items()}
    module = tf.Module(name="tbnets")
    module.tokenizer = endpoints.tokenizer
    module.used_variables = list(used.values())
    for name, function in functions.items():
        setattr(module, name, function)
    return module, functions


def reexport(  # noqa: PLR0913  (all but the first two by name)
    source, path, *, keep=(), add=None, extra=None, metadata=None, trust=False
):
    """Copies a SavedModel, adding or leaving out signatures.

    Copied signatures keep their names, dtypes and shapes, and return
    bit-identical results. Variables that no signature reads are left out.

    Args:
        source: folder of the SavedModel, of its versions or of its run.
        path: folder to write, which must not exist.
        keep: names of the existing and added signatures to keep; empty for all.
            If the default signature is left out, the first name becomes the
            default.
        add: function that takes the source's `Served`, whose `signatures` it
            may call, and returns a dict of `tf.function`s by name. Each
            `tf.function` has an input signature and returns a dict of tensors.
            Added signatures replace signatures of the same name.
        extra: as in `write_saved_model`.
        metadata: additional metadata, a dict of JSON values.
        trust: whether to allow all ops in the source's graph.

    Raises:
        FileExistsError: `path` exists.
        ValueError: a name in `keep` is not a signature, or
            `saved_files.load_graph` or `write_saved_model` raises the error.
    """
    path = check_new(path)
    served = load_saved_model(source, trust)
    root, before = served.root, served.signatures
    # A graph holds only weak references to its variables, so `new` must
    # outlive the save.
    new = add(served) if add else {}
    added = {name: guarded(f) for name, f in new.items()}
    signatures = {**before, **added}
    signatures.pop(DEFAULT, None)
    for name in keep:
        check_choice("signatures", name, sorted(signatures))
    chosen = {name: signatures[name] for name in keep or signatures}
    default = _default(before.get(DEFAULT), chosen)
    for name in before.keys() - chosen.keys():
        if hasattr(root, name):
            delattr(root, name)
    for name in added.keys() & chosen.keys():
        setattr(root, name, chosen[name])
    signatures = {DEFAULT: default, **chosen}
    variables = {id(v): v for f in signatures.values() for v in f.variables}
    # Saves only the variables that the signatures read.
    setattr(root, saved_files.KEPT, list(variables.values()))
    description = _described(served, metadata or {}, chosen)

    words = served.vocabulary
    return save(root, signatures, path, description, words, extra)


def _default(default, chosen):
    description = default and describe_signature(default)
    is_kept = description in map(describe_signature, chosen.values())
    return default if is_kept else next(iter(chosen.values()))


def _described(served, metadata, functions):
    old, current = served.metadata, versions()
    source = {name: old.get(name) for name in current}
    source["sha256"] = file_sha256(served.path / saved_files.GRAPH_FILE)
    signatures = {name: describe_signature(f) for name, f in functions.items()}
    changes = {"signatures": signatures, "exported_from": source}
    return {**old, **metadata, **current, **changes}


def next_version(folder):
    """Returns the next free version number in a model's folder, at least 1."""
    names = [path.name for path in pathlib.Path(folder).glob("[0-9]*")]
    numbers = [int(n) for n in names if n.isascii() and n.isdigit()]
    return max(numbers, default=0) + 1


def versions():
    """Returns the versions of the packages that write a SavedModel."""
    return {
        "tbnets_version": tbnets.__version__,
        "tensorflow_version": tf.__version__,
        "keras_version": importlib.metadata.version("keras"),
    }


def inputs_of(function):
    """Returns the input `tf.TensorSpec`s of a concrete function, by name."""
    arguments, named = function.structured_input_signature
    return {spec.name: spec for spec in (*arguments, *named.values())}


def describe_signature(function):
    """Returns a JSON-ready dict of a concrete function's inputs and outputs."""
    inputs, outputs = inputs_of(function), function.structured_outputs
    return {
        side: {
            name: {"dtype": spec.dtype.name, "shape": list(spec.shape)}
            for name, spec in specs.items()
        }
        for side, specs in (("inputs", inputs), ("outputs", outputs))
    }


def is_batchable(described):
    """Returns whether a server may batch the rows of several requests.

    `described` is the result of `describe_signature`. The signature must have a
    single input and outputs with one row for each input row. No other dimension
    may be unknown, because an output of shape `[m, m]`, for example, would mix
    the rows of different requests.
    """
    inputs, outputs = (
        [spec["shape"] for spec in described[kind].values()]
        for kind in ("inputs", "outputs")
    )
    return (
        len(inputs) == 1
        and all(shape[:1] == [None] for shape in inputs + outputs)
        and all(None not in shape[1:] for shape in inputs + outputs)
    )


# Half precision. The graph is rewritten: it reads the float16 copy of a weight
# and casts it to float32. Vectors remain float32: they are small, and variances
# of batch normalisation may exceed the range of float16.

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
            expected = "be used only with weights of at most 65504"
            raise InputError("half_precision", expected, variable.name)
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
