"""An exported model written once more, with other signatures."""

import shutil

from tbnets.errors import InputError
from tbnets.serving import export, saved_files
from tbnets.serving.doors import guarded
from tbnets.serving.served import Served
from tbnets.store.manifest import file_sha256


def reexport(  # noqa: PLR0913  (all but the first two by name)
    source, path, *, keep=(), add=None, extra=None, told=None, trust=False
):
    """Writes a SavedModel once more, with signatures added or left out.

    Those that stay answer the same to the bit, and keep their names, dtypes
    and shapes. Weights that none of them reads are left out.

    Args:
        source: as in `saved_files.newest_version`; it stays as it is.
        path: folder to write, as in `export.write_saved_model`.
        keep: names of signatures to keep, of the source and of those added;
            none for all. The default signature stays if the one that it is
            does; else it is the first of `keep`.
        add: function of the `Served` that is written once more, whose
            `signatures` may be called in a graph; returns a dict, name ->
            `tf.function` with an input signature that returns a dict of
            tensors. Variables that they read are kept. A name that the source
            has is replaced. Or None.
        extra: as in `export.write_saved_model`.
        told: what else it says of itself, dict of JSON values; or None.
        trust: as in `saved_files.load`.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        FileExistsError: If `path` exists.
        ValueError: If the source has no signature of a name, or as
            `saved_files.load` and `export.write_saved_model`.

    Example:
        def add(served):
            embed = served.signatures["embed_text"]

            @tf.function(input_signature=[tf.TensorSpec([None], tf.string,
                                                        "captions")])
            def count(captions):
                rows = embed(captions=captions)["embeddings"]
                return {"count": tf.shape(rows)[0]}

            return {"count": count}

        reexport("runs/own", "served/own/1", add=add)
    """
    path = export.check_new(path)
    source, root, said = saved_files.load(source, trust)
    before = dict(root.signatures)
    # Held to the end: a graph holds its variables weakly.
    words = saved_files.read_vocabulary(source)
    made = add(Served(source, before, said, words)) if add else {}
    added = {name: guarded(one) for name, one in made.items()}
    signatures = {**before, **added}
    signatures.pop(export.DEFAULT, None)
    kept = {name: signatures[name] for name in _chosen(keep, signatures)}
    default = _default(before.get(export.DEFAULT), kept)
    for name in before.keys() - kept.keys():
        if hasattr(root, name):
            delattr(root, name)
    for name in added.keys() & kept.keys():
        setattr(root, name, kept[name])
    _keep_variables(root, [default, *kept.values()])

    def fill(folder):
        vocabulary = source / saved_files.VOCABULARY_FILE
        if vocabulary.is_file():
            shutil.copyfile(vocabulary, folder / saved_files.VOCABULARY_FILE)
        if extra is not None:
            extra(folder)

    signatures = {export.DEFAULT: default, **kept}
    said = _described(source, {**said, **(told or {})}, kept)
    return export.save(root, signatures, path, said, fill)


def _chosen(keep, signatures):
    """Returns the names to keep, once there are such signatures."""
    unknown = [name for name in keep if name not in signatures]
    if unknown:
        raise InputError(
            f"`signatures` must be some of {', '.join(sorted(signatures))}. "
            f"Received: {unknown[0]}. Leave it out, or export from what has it."
        )
    return list(keep) or list(signatures)


def _default(default, kept):
    """Returns the default signature: the one there was, or the first."""
    if default is not None:
        taken = export.describe({export.DEFAULT: default})[export.DEFAULT]
        if taken in export.describe(kept).values():
            return default
    return next(iter(kept.values()))


def _keep_variables(root, functions):
    """Lets what is saved track the variables that functions read, no others."""
    read = {id(v): v for one in functions for v in one.variables}
    setattr(root, saved_files.KEPT, list(read.values()))


def _described(source, said, kept):
    """Returns what the new SavedModel says of itself.

    Args:
        source: folder of the old one.
        said: what that says.
        kept: the signatures.
    """
    graph = file_sha256(source / saved_files.GRAPH_FILE)
    was = {name: said.get(name) for name in export.versions()}
    known = said.get("signatures", {})
    # Inputs in the order in which they were written down.
    signatures = {**export.describe(kept)}
    signatures |= {
        name: known[name]
        for name, one in signatures.items()
        if known.get(name) == one
    }
    return {
        **said,
        **export.versions(),
        "signatures": signatures,
        "exported_from": {**was, "sha256": graph},
    }
