"""An exported model written once more, with other signatures."""

from tbnets.data.store.manifest import file_sha256
from tbnets.errors import check_choice
from tbnets.serving import export, saved_files
from tbnets.serving.doors import guarded
from tbnets.serving.served import load_saved_model


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
    served = load_saved_model(source, trust)
    root, before = served.root, served.signatures
    # Held to the end: a graph holds its variables weakly.
    made = add(served) if add else {}
    added = {name: guarded(one) for name, one in made.items()}
    signatures = {**before, **added}
    signatures.pop(export.DEFAULT, None)
    for name in keep:
        advice = "Leave it out, or export from what has it."
        check_choice("signatures", name, sorted(signatures), advice)
    kept = {name: signatures[name] for name in keep or signatures}
    default = _default(before.get(export.DEFAULT), kept)
    for name in before.keys() - kept.keys():
        if hasattr(root, name):
            delattr(root, name)
    for name in added.keys() & kept.keys():
        setattr(root, name, kept[name])
    signatures = {export.DEFAULT: default, **kept}
    read = {id(v): v for one in signatures.values() for v in one.variables}
    # What is saved tracks these, and no others.
    setattr(root, saved_files.KEPT, list(read.values()))
    said = _described(served, told or {}, kept)
    return export.save(root, signatures, path, said, served.vocabulary, extra)


def _default(default, kept):
    """Returns the default signature: the one there was, or the first."""
    taken = default and export.describe(default)
    is_kept = taken in map(export.describe, kept.values())
    return default if is_kept else next(iter(kept.values()))


def _described(served, told, kept):
    """Returns what the new SavedModel says of itself.

    Args:
        served: the old one.
        told: what else it says.
        kept: the signatures.
    """
    said, current = served.metadata, export.versions()
    was = {name: said.get(name) for name in current}
    was["sha256"] = file_sha256(served.path / saved_files.GRAPH_FILE)
    signatures = {name: export.describe(one) for name, one in kept.items()}
    more = {"signatures": signatures, "exported_from": was}
    return {**said, **told, **current, **more}
