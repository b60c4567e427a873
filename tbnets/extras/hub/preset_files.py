"""Finds, downloads, reads and checks the files of Keras Hub presets.

The JSON files are untrusted. They may refer only to Keras Hub classes. This is
checked before any class is instantiated.
"""

import difflib
import pathlib

import keras

from tbnets import files
from tbnets.errors import (
    InputError,
    MissingFileError,
    UnreachableError,
    check_choice,
    import_extra,
)

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
SHARDS, CONVERTER = "model.weights.json", "image_converter.json"
_KERAS_MODULES = (
    "keras.initializers",
    "keras.regularizers",
    "keras.constraints",
)
_PASSING = ("dtype", "build_config", "compile_config")
"""Config keys that describe the process that wrote the config."""
_PATHS = ("vocabulary", "merges", "proto")
"""Tokenizer config keys that could name any file. A preset has its own
files."""


def _from_kaggle(handle, file):
    return import_extra("hub", "kagglehub").model_download(handle, file)


def _from_hugging_face(handle, file):
    """Searches the cache first: an offline download takes 24 s to fail."""
    download = import_extra("hub", "huggingface_hub").hf_hub_download
    try:
        return download(handle, file, local_files_only=True)
    except FileNotFoundError:
        return download(handle, file)


_FETCH = {"kaggle": _from_kaggle, "hf": _from_hugging_face}
"""Maps the scheme of a handle to a function that takes a handle and a file
name, and returns the path of the cached file."""


def find_preset(name, known):
    """Returns the folder or the handle of a preset.

    `name` is a folder, a handle, or a name in `known`; a folder takes
    precedence. `known` maps Keras Hub's names to dicts with a `kaggle_handle`.
    """
    if pathlib.Path(name).is_dir():
        return name
    scheme, is_handle, _ = name.partition("://")
    if is_handle:
        check_choice("scheme", scheme, _FETCH, f"Received: preset={name}.")
        return name
    if name in known:
        return known[name]["kaggle_handle"]
    if pathlib.Path(name).name != name or not name:
        raise MissingFileError(
            "preset",
            "be a folder written by save_to_preset",
            f"preset={name!r}, which does not exist",
            "Check the path.",
        )
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    advice = f"Did you mean {', '.join(near)}? " if near else ""
    raise InputError(
        "preset",
        f"be one of the {len(known)} names of Keras Hub, a handle (kaggle://, "
        "hf://) or a folder",
        f"preset={name}",
        f"{advice}https://keras.io/keras_hub/presets lists them.",
    )


def fetch(source, file, name):
    """Returns the path of a preset's file, downloading the file if needed.

    `source` is a folder or a handle, and `name` is the preset's name in error
    messages. Raises FileNotFoundError if the folder has no such file, and
    ConnectionError if the download fails.
    """
    scheme, is_handle, handle = source.partition("://")
    if not is_handle:
        path = pathlib.Path(source, file)
        if path.is_file():
            return path
        raise MissingFileError(
            f"`preset` must be a folder with a complete preset. Received: "
            f"preset={name} without {file}. Save the model and its "
            "preprocessor with save_to_preset, or name another folder."
        )
    try:
        return pathlib.Path(_FETCH[scheme](handle, file))
    except Exception as error:  # Hubs raise different errors.
        raise UnreachableError(
            "`preset` must be available for download. Received: "
            f"preset={name}, whose {file} {scheme} does not provide "
            f"({' '.join(str(error).split())[:300]}). Check the name, the "
            "connection and the disk space, or name a local folder."
        ) from error


def weights_files(source, name, whole=WEIGHTS, shards=SHARDS):
    """Returns the paths of a preset's weights files.

    `source` and `name` are as in `fetch`. The weights are in the file `whole`,
    or in several files that the file `shards` lists. The path of `shards` comes
    first.
    """
    try:
        return [fetch(source, whole, name)]
    except (MissingFileError, UnreachableError) as missing:
        try:
            path = fetch(source, shards, name)
        except (MissingFileError, UnreachableError):
            raise missing from None
    weight_map = parsed(path).get("weight_map")
    parts = set()
    for each in weight_map.values() if isinstance(weight_map, dict) else ():
        parts.update([each] if isinstance(each, str) else map(str, each))
    for part in sorted(parts):
        if pathlib.Path(part).name != part:
            raise damaged(name, f"{path} names {files.shown(part)}")
    return [path, *(fetch(source, part, name) for part in sorted(parts))]


def foreign_files(source, name):
    """Returns the files of a `transformers` or `timm` preset, as {name: path}.

    From a folder, returns all files except READMEs and hidden files.
    """
    if "://" not in source:
        paths = sorted(pathlib.Path(source).iterdir())
        return {
            path.name: path
            for path in paths
            if path.is_file() and not path.name.startswith((".", "README"))
        }
    whole = "model.safetensors"
    weights = weights_files(source, name, whole, f"{whole}.index.json")
    return {path.name: path for path in [fetch(source, CONFIG, name), *weights]}


def parsed(path):
    """Reads a JSON file, which must contain an object."""
    try:
        return {**files.parse_json(path.read_text("utf-8"))}
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} must be a JSON file of a preset. Received: an unreadable "
            f"file ({error}). Download or save the preset again."
        ) from error


def check_config(config, where):
    """Returns a config after checking that its classes are from Keras Hub.

    Keras' dtype policies, initializers and functions are also allowed. `where`
    names the JSON file in error messages.
    """
    for each in _objects(config):
        names = [each.get(key) for key in ("module", "class_name")]
        paths = [key for key in _PATHS if isinstance(each.get(key), str)]
        if names != [None, None] and not _is_harmless(each) or paths:
            foreign = paths or [each.get("registered_name") or names]
            raise InputError(
                "preset",
                "name only classes of Keras Hub, and no files",
                f"{files.shown(str(foreign[0]))} in {where}",
                "Choose another preset: this one could run any code or read "
                "any file.",
            )
    return config


def _objects(value):
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _is_harmless(config):
    module, kind = config.get("module"), config.get("class_name")
    registered = config.get("registered_name")
    if not all(isinstance(x, str | None) for x in (module, kind, registered)):
        return False
    # Without a registered name, Keras looks up the class name.
    if ">" in str(kind):
        return False
    if registered and registered.startswith("keras_hub>"):
        cls = keras.saving.get_registered_object(registered)
        return getattr(cls, "__module__", "").startswith("keras_hub.")
    if kind == "function":
        return module == "builtins" and ">" not in str(config.get("config"))
    policies = "DTypePolicy", "DTypePolicyMap"
    is_policy = module == "keras" and str(kind).endswith(policies)
    return not registered and (is_policy or module in _KERAS_MODULES)


def is_keras_hub(config):
    """Returns whether a config is from Keras Hub rather than `transformers`."""
    return "registered_name" in config


def bare(config):
    """Returns a config without the keys in `_PASSING`."""
    if isinstance(config, dict):
        return {k: bare(v) for k, v in config.items() if k not in _PASSING}
    if isinstance(config, list | tuple):
        return [bare(each) for each in config]
    return config


def resized(config, image_size):
    """Returns a config with the given image size."""
    settings = config["config"]
    inner = settings.get("vision_encoder", {}).get("config", {})
    keys = [key for key in ("image_shape", "input_shape") if key in settings]
    shapes = [settings[key] for key in keys] or [inner.get("image_shape")]
    side = shapes[0] and shapes[0][0]
    if side in (None, image_size):  # The size is free, or the preset's.
        return config
    if not keys:
        raise InputError(
            "image_size",
            f"be {side}, because positions are learned",
            f"image_size={image_size}",
            "Leave it out.",
        )
    shape = [image_size, image_size, 3]
    return {**config, "config": {**settings, **dict.fromkeys(keys, shape)}}


def damaged(name, reason):
    """Returns the error for a preset that cannot be opened."""
    return InputError(
        "preset",
        "be a preset that Keras Hub can open",
        f"preset={name} ({reason})",
        "Download or save it again.",
    )
