"""Reads and checks the files of a SavedModel.

`assets.extra/tbnets.json` contains the SHA-256 digests of all other files.
"""

import pathlib

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, is_kind, shown
from tbnets.serving.checksums import GRAPH_FILE, METADATA_FILE, differences
from tbnets.text.vocabulary import Vocabulary

VOCABULARY_FILE = "assets.extra/vocabulary.txt"
SHA256 = "sha256"
KEPT = "used_variables"
"""Attribute of a SavedModel that lists the variables its endpoints read."""
_CURE = "Copy it again, or export the run again."


def newest_version(path):
    """Returns the folder of the newest SavedModel of a run.

    Args:
        path: a run folder, its `saved_model` folder with numbered versions, or
            the folder of a version.
    """
    versions = find_versions(path)
    if versions:
        return versions[max(versions)]
    expected = f"be a folder with {GRAPH_FILE}, or of a finished run"
    raise MissingFileError("path", expected, path)


def find_versions(path):
    """Returns a dict that maps a run's version numbers to SavedModel folders.

    A SavedModel in a folder without a number has version number 1.
    """
    path = pathlib.Path(path)
    for folder in (path / "saved_model", path):
        files = folder.glob(f"[0-9]*/{GRAPH_FILE}")
        versions = [f.parent for f in files if f.parent.name.isdecimal()]
        if versions:
            return {int(version.name): version for version in versions}
    if (path / GRAPH_FILE).is_file():
        return {int(path.name) if path.name.isdecimal() else 1: path}
    return {}


def load_graph(path, trust=False):
    """Loads a SavedModel after checking its files and ops.

    `path` is as in `newest_version`. If `trust` is True, all ops are allowed.
    Returns (path, root, metadata): the SavedModel's folder, the object that
    TensorFlow loaded, and the metadata. Raises ValueError if it is damaged or
    has forbidden ops.
    """
    path = newest_version(path)
    metadata = read_metadata(path)
    _check_files(path, metadata)
    if not trust and (foreign := foreign_ops(read_graphs(path))):
        raise InputError(
            "path",
            "be a SavedModel whose ops only compute",
            f"path='{path}' with {foreign}, which may write files",
            "If you trust its author, pass --trust or trust=True.",
        )
    try:
        root = tf.saved_model.load(str(path))
    except Exception as error:  # Damaged files can raise any error.
        raise _failed(path, error) from error
    return path, root, metadata


def read_graphs(path):
    """Returns the `MetaGraphDef`s of a SavedModel, without executing them."""
    content = (path / GRAPH_FILE).read_bytes()
    try:
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise _failed(path, error) from error
    return model.meta_graphs


def read_metadata(path):
    """Returns the metadata of a SavedModel, or {} if there is no metadata."""
    file = CheckedFile(pathlib.Path(path, METADATA_FILE))
    if not pathlib.Path(file.path).is_file():
        return {}
    metadata = file.json()
    for name, kind in _KINDS.items():
        value = metadata
        for key in filter(None, name.split(".")):
            value = value.get(key, ...) if type(value) is dict else ...
        if value is not ... and not is_kind(value, kind):
            file.report(
                f"expected {name or 'the file'} to be {kind}; "
                f"found {shown(value)}. {_CURE}"
            )
    return metadata


def read_vocabulary(path):
    """Returns the `Vocabulary` of a SavedModel, or None if there is none."""
    file = pathlib.Path(path, VOCABULARY_FILE)
    return Vocabulary.load(file) if file.is_file() else None


_KINDS = {
    "": dict,
    SHA256: dict,
    "max_tokens": int | None,
    "index_size": int,
    "metadata": dict,
    "metadata.settings": dict,
    "metadata.likely_similarities": list[list[float]],
    "metadata.image_features_made_by": dict,
    "metadata.image_features_made_by.proposals": dict | None,
}
"""Maps metadata keys to the types of their values."""


def read_weights(path):
    """Returns unsorted (name, array) pairs of a SavedModel's variables."""
    _, root, _ = load_graph(path)
    variables = getattr(root, KEPT, ())
    return [(v.name.partition(":")[0], v.numpy()) for v in variables]


def _check_files(path, metadata):
    for problem in differences(path, metadata.get(SHA256, {})):
        raise _damaged(path, f"where {problem}")


def _failed(path, error):
    reason = " ".join(str(error).split()) or type(error).__name__
    return _damaged(path, f"which does not load ({reason[:300]})")


def _damaged(path, problem):
    received = f"path='{path}', {problem}"
    return InputError("path", "be a complete SavedModel", received, _CURE)


_FILE = pathlib.Path(__file__).with_name("allowed_ops.txt")
ALLOWED_OPS = frozenset(_FILE.read_text().splitlines())
"""Ops that a graph may contain. The file's comments match no op."""
SAVER_OPS = frozenset(
    ["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"]
)
"""Ops that save and restore a SavedModel's own variables, in functions that no
signature calls."""


def check_ops(name, graph_def, advice=""):
    """Raises a ValueError if TensorFlow Serving cannot load a `GraphDef`."""
    ops = _ops_of(graph_def.node, graph_def.library.function)
    if unknown := sorted(ops - ALLOWED_OPS):
        expected = "be a graph of computing ops of TensorFlow and TF Text 2.12"
        raise InputError(name, expected, unknown, advice)


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
